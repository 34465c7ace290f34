// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/components/component_policy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace offstage {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Wrong {
  const char* name;
  std::string_view document;
  const char* pointer;
  const char* expected;
  const char* found;
};

const Wrong kWrong[] = {
    {"RootIsAnArray", "[true]", "", "an object of component paths", "an array"},
    {"RootIsAString", R"("vae")", "", "an object of component paths", "the string \"vae\""},
    {"RootIsABoolean", "true", "", "an object of component paths", "true"},
    {"RootIsANumber", "7", "", "an object of component paths", "the number 7"},
    {"ZeroIsNotFalse", R"({"vae": 0})", "/vae", "true or false", "the number 0"},
    {"OneIsNotTrue", R"({"vae": 1})", "/vae", "true or false", "the number 1"},
    {"NegativeNumber", R"({"vae": -1})", "/vae", "true or false", "the number -1"},
    {"Fraction", R"({"vae": 0.50})", "/vae", "true or false", "the number 0.50"},
    {"MoreThanAnInteger", R"({"vae": 18446744073709551616})", "/vae", "true or false",
     "the number 18446744073709551616"},
    {"NumberBeyondDouble", R"({"vae": 1e400})", "/vae", "true or false", "the number 1e400"},
    {"StringIsNotABoolean", R"({"vae": "true"})", "/vae", "true or false", "the string \"true\""},
    {"ValueIsNull", R"({"vae": null})", "/vae", "true or false", "null"},
    {"ValueIsAnArray", R"({"vae": []})", "/vae", "true or false", "an array"},
    {"ValueIsAnObject", R"({"vae": {"a": true}})", "/vae", "true or false", "an object"},
    {"DefaultIsChecked", R"({"default": 1})", "/default", "true or false", "the number 1"},
    {"PointerIsEscaped", R"({"a/b~c": 0})", "/a~1b~0c", "true or false", "the number 0"},
    {"EmptyKey", R"({"": true})", "/", "a component path or 'default'", "an empty key"},
    {"KeyTwice", R"({"vae": true, "vae": true})", "/vae", "each key once", "the key again"},
    {"KeyTwiceInOtherSpelling", R"({"vae": true, "va\u0065": false})", "/vae", "each key once",
     "the key again"},
    {"DefaultTwice", R"({"default": true, "default": true})", "/default", "each key once",
     "the key again"},
};

class WrongPolicyTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongPolicyTest, NamesPlaceExpectedAndFound) {
  try {
    (void)ComponentPolicy::parse(GetParam().document);
    FAIL() << "accepted: " << GetParam().document;
  } catch (const PolicyError& error) {
    EXPECT_EQ(error.pointer(), GetParam().pointer);
    EXPECT_EQ(error.expected(), GetParam().expected);
    EXPECT_EQ(error.found(), GetParam().found);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrongPolicyTest, ::testing::ValuesIn(kWrong),
                         [](const auto& instance) { return instance.param.name; });

struct Malformed {
  const char* name;
  std::string_view document;
  const char* pointer;
};

const Malformed kMalformed[] = {
    {"Nothing", "", ""},
    {"OnlyBlanks", "  \n", ""},
    {"TrailingComma", R"({"vae": true,})", ""},
    {"TrailingText", R"({"vae": true} x)", ""},
    {"SecondDocument", R"({"vae": true}{})", ""},
    {"TextAfterNull", "null null", ""},
    {"Unclosed", R"({"vae": true)", ""},
    {"NoValue", R"({"vae": })", "/vae"},
    {"NotANumber", R"({"vae": NaN})", "/vae"},
    {"Infinity", R"({"vae": -Infinity})", "/vae"},
    {"CapitalTrue", R"({"vae": True})", "/vae"},
    {"SingleQuotes", "{'vae': true}", ""},
    {"UnquotedKey", "{vae: true}", ""},
    {"Comment", "{/* all */}", ""},
    {"BadUtf8", "{\"va\xff\": true}", ""},
    {"ControlCharacter", "{\"va\n\": true}", ""},
    {"ZeroByte", std::string_view("{}\0", 3), ""},
};

class MalformedPolicyTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedPolicyTest, IsRefusedWithAPlace) {
  try {
    (void)ComponentPolicy::parse(GetParam().document);
    FAIL() << "accepted: " << GetParam().document;
  } catch (const PolicyError& error) {
    EXPECT_EQ(error.pointer(), GetParam().pointer);
    EXPECT_EQ(error.expected(), "valid JSON");
    EXPECT_THAT(error.found(), StartsWith("byte "));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MalformedPolicyTest, ::testing::ValuesIn(kMalformed),
                         [](const auto& instance) { return instance.param.name; });

TEST(ComponentPolicyJsonTest, ASyntaxErrorNamesItsByteAndNotTheParser) {
  try {
    (void)ComponentPolicy::parse(R"({"vae": true,})");
    FAIL() << "a trailing comma was accepted";
  } catch (const PolicyError& error) {
    EXPECT_THAT(error.found(), StartsWith("byte 14: parse error at line 1, column 14"));
  }
}

TEST(ComponentPolicyJsonTest, DepthCannotExhaustTheStack) {
  const std::string deep = R"({"vae": )" + std::string(1'000'000, '[');
  EXPECT_THROW((void)ComponentPolicy::parse(deep), PolicyError);
  EXPECT_THROW((void)ComponentPolicy::parse(std::string(1'000'000, '[')), PolicyError);
}

TEST(ComponentPolicyJsonTest, ALongStringIsNotQuotedInTheError) {
  const std::string document = R"({"vae": ")" + std::string(100'000, 'x') + R"("})";
  try {
    (void)ComponentPolicy::parse(document);
    FAIL() << "a string was accepted";
  } catch (const PolicyError& error) {
    EXPECT_EQ(error.found(), "the string of 100000 bytes");
  }
}

TEST(ComponentPolicyJsonTest, EscapedKeysAreRead) {
  EXPECT_FALSE(ComponentPolicy::parse(R"({"v\u00e4": false})").lookup("v\xc3\xa4"));
}

}  // namespace
}  // namespace offstage

// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/checkpoint/safetensors_file.hpp>

#include <ATen/EmptyTensor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  /// A file of a length, a header and data.
  std::filesystem::path write(const std::string& header, const std::string& data) {
    return write_raw(length(header.size()) + header + data);
  }

  std::filesystem::path write_raw(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

  static std::string length(std::uint64_t value) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
    return bytes;
  }

  /// What opening the file says is wrong; empty if nothing is.
  std::string refusal(const std::string& header, const std::string& data) {
    write(header, data);
    return refusal();
  }

  std::string refusal() {
    try {
      static_cast<void>(SafetensorsFile::open(path_));
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
      return error.what();
    }
    return "";
  }

  static at::Tensor floats(std::vector<std::int64_t> shape, float value,
                           c10::ScalarType dtype = c10::ScalarType::Float) {
    const at::Tensor tensor = at::detail::empty_cpu(shape, dtype, false);
    tensor.fill_(value);
    return tensor;
  }

  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("offstage_safetensors_" + std::to_string(::getpid()));
};

const std::string kOneFloat = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

std::string four(float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

TEST_F(SafetensorsFileTest, ReadsNamesShapesDtypesAndValues) {
  const auto file = SafetensorsFile::open(write(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
      R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}   )",
      four(1.5F) + four(-2)));
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(1, 1));
  EXPECT_EQ(file.tensors()[0].bytes, 4);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.read("a").item<float>(), 1.5F);
  EXPECT_EQ(file.read("b").item<float>(), -2.0F);
  EXPECT_EQ(file.read("b").dim(), 0);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THROW(static_cast<void>(file.read("c")), CheckpointError);
}

TEST_F(SafetensorsFileTest, AcceptsNoTensorsNullMetadataAndTensorsWithoutElements) {
  EXPECT_EQ(refusal("{}", ""), "");
  EXPECT_EQ(refusal(R"({"__metadata__":null})", ""), "");
  EXPECT_EQ(refusal(R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                    R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                    "x"),
            "");
  EXPECT_EQ(SafetensorsFile::open(path_).read("e").numel(), 0);
}

// C13: every dtype goes through as bytes.
TEST_F(SafetensorsFileTest, KeepsTheBytesOfEveryDtype) {
  const std::vector<std::pair<std::string, c10::ScalarType>> dtypes = {
      {"U8", c10::ScalarType::Byte},
      {"I8", c10::ScalarType::Char},
      {"I16", c10::ScalarType::Short},
      {"U16", c10::ScalarType::UInt16},
      {"F16", c10::ScalarType::Half},
      {"BF16", c10::ScalarType::BFloat16},
      {"I32", c10::ScalarType::Int},
      {"U32", c10::ScalarType::UInt32},
      {"F32", c10::ScalarType::Float},
      {"F64", c10::ScalarType::Double},
      {"I64", c10::ScalarType::Long},
      {"U64", c10::ScalarType::UInt64},
      {"C64", c10::ScalarType::ComplexFloat},
      {"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
      {"F8_E5M2", c10::ScalarType::Float8_e5m2},
      {"F8_E8M0", c10::ScalarType::Float8_e8m0fnu},
      {"F8_E4M3FNUZ", c10::ScalarType::Float8_e4m3fnuz},
      {"F8_E5M2FNUZ", c10::ScalarType::Float8_e5m2fnuz}};
  std::string data(16, '\0');
  for (std::size_t i = 0; i < 16; ++i) data[i] = static_cast<char>(i * 37 + 11);
  for (const auto& [tag, dtype] : dtypes) {
    const std::size_t count = 16 / c10::elementSize(dtype);
    const auto file =
        SafetensorsFile::open(write(R"({"w":{"dtype":")" + tag + R"(","shape":[)" +
                                        std::to_string(count) + R"(],"data_offsets":[0,16]}})",
                                    data));
    const at::Tensor tensor = file.read("w");
    EXPECT_EQ(tensor.scalar_type(), dtype) << tag;
    EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), data.data(), 16), 0) << tag;
  }
}

TEST_F(SafetensorsFileTest, KeepsBooleansAndRefusesOtherBytesInThem) {
  const std::string header = R"({"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_TRUE(SafetensorsFile::open(write(header, std::string("\0\1", 2)))
                  .read("w")
                  .const_data_ptr<bool>()[1]);
  const auto file = SafetensorsFile::open(write(header, "\1\2"));
  EXPECT_THROW(static_cast<void>(file.read("w")), CheckpointError);
}

TEST_F(SafetensorsFileTest, RefusesUnknownDtypesNamingTagAndTensor) {
  for (const std::string tag : {"F4", "f32", "Q8"}) {
    EXPECT_THAT(
        refusal(R"({"w":{"dtype":")" + tag + R"(","shape":[1],"data_offsets":[0,4]}})", four(0)),
        AllOf(HasSubstr("tensor 'w'"), HasSubstr("unknown dtype '" + tag + "'")));
  }
}

TEST_F(SafetensorsFileTest, ReadsFloatsThatAreNotAligned) {
  const auto file = SafetensorsFile::open(write(kOneFloat + " ", four(3)));
  EXPECT_NE(file.tensors()[0].offset % 4, 0);
  EXPECT_EQ(file.read("w").item<float>(), 3.0F);
}

// C50: a corrupt header.
TEST_F(SafetensorsFileTest, RefusesImpossibleHeaderLengths) {
  write_raw(length(0xFFFFFFFFFFFFFFF8) + kOneFloat + four(0));
  EXPECT_THAT(refusal(), HasSubstr("18446744073709551608 bytes; at most 100000000"));
  write_raw(length(0) + kOneFloat);
  EXPECT_THAT(refusal(), HasSubstr("0 bytes"));
  write_raw(length(100'000'001));
  EXPECT_THAT(refusal(), HasSubstr("at most 100000000"));
  write_raw("short");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("truncated"), HasSubstr("has 5")));
  write_raw(length(99'000'000) + "{}");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("truncated"), HasSubstr("99000008"), HasSubstr("has 10")));
}

// C50
TEST_F(SafetensorsFileTest, RefusesOffsetsThatDoNotFit) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_THAT(refusal(one("[1]", "[4,0]"), four(0)), HasSubstr("'w': ends before it begins"));
  EXPECT_THAT(refusal(one("[2]", "[0,8]"), four(0)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(one("[2]", "[0,4]"), four(0)), HasSubstr("need 8 bytes, its offsets span 4"));
  EXPECT_THAT(refusal(one("[1]", "[1,5]"), four(0) + "x"), HasSubstr("'w': begins at byte 1"));
  EXPECT_THAT(refusal(one("[1]", "[0,4,4]"), four(0)), HasSubstr("two numbers"));
  EXPECT_THAT(refusal(one("[4611686018427387904,4]", "[0,0]"), ""), HasSubstr("63 bits"));
  EXPECT_THAT(refusal(one("[0,4611686018427387904,4]", "[0,0]"), ""), HasSubstr("63 bits"));
  EXPECT_THAT(refusal(one("[18446744073709551615]", "[0,4]"), four(0)), HasSubstr("63 bits"));
  EXPECT_THAT(refusal(one("[99999999999999999999999]", "[0,4]"), four(0)), HasSubstr("too large"));
  EXPECT_THAT(refusal(one("[-1]", "[0,4]"), four(0)), HasSubstr("negative"));
  EXPECT_THAT(refusal(one("[1.0]", "[0,4]"), four(0)), HasSubstr("not a whole one"));
  EXPECT_THAT(refusal(one("[[1]]", "[0,4]"), four(0)), HasSubstr("an array"));
}

// C50
TEST_F(SafetensorsFileTest, RefusesOverlapsHolesAndNamesThatComeTwice) {
  const auto two = [](const std::string& name, const std::string& offsets) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},")" + name +
           R"(":{"dtype":"U8","shape":[2],"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(refusal(two("b", "[2,4]"), "wxyz"), "");
  EXPECT_THAT(refusal(two("b", "[1,3]"), "xyz"), HasSubstr("overlap"));
  EXPECT_THAT(refusal(two("b", "[0,2]"), "xy"), HasSubstr("overlap"));
  EXPECT_THAT(refusal(two("b", "[3,5]"), "vwxyz"), HasSubstr("hole"));
  EXPECT_THAT(refusal(two("a", "[2,4]"), "wxyz"), HasSubstr("'a': the name comes twice"));
}

TEST_F(SafetensorsFileTest, RefusesHeadersOfAnotherForm) {
  EXPECT_THAT(refusal("[]", ""), HasSubstr("'{'"));
  EXPECT_THAT(refusal(" {}", ""), HasSubstr("'{'"));
  EXPECT_THAT(refusal("{", ""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{}x", ""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"\xff\":1}", ""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(std::string("{}\0", 3), ""), HasSubstr("NUL"));
  EXPECT_THAT(refusal(R"({"w":1})", ""), HasSubstr("'w'"));
  EXPECT_THAT(refusal(R"({"w":null})", ""), HasSubstr("null"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[0]}})", ""), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(R"({"w":{"x":1}})", ""), HasSubstr("unknown field 'x'"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","dtype":"F32"}})", ""), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":{}}})", ""), HasSubstr("an object"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", ""), HasSubstr("metadata"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", ""), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", ""), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"({"":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", ""),
              HasSubstr("empty name"));
  EXPECT_THAT(refusal("{\"w\":" + std::string(100'000, '['), ""), HasSubstr("an array"));
}

// C51: a truncated file.
TEST_F(SafetensorsFileTest, SaysTruncatedWithBothSizesWhenTheLastByteIsMissing) {
  const auto declared = std::to_string(8 + kOneFloat.size() + 4);
  const auto actual = std::to_string(8 + kOneFloat.size() + 3);
  EXPECT_THAT(refusal(kOneFloat, four(1).substr(0, 3)),
              AllOf(HasSubstr("truncated"), HasSubstr(declared), HasSubstr(actual)));
}

TEST_F(SafetensorsFileTest, RefusesBytesAfterTheLastTensor) {
  EXPECT_THAT(refusal(kOneFloat, four(1) + "x"), HasSubstr("1 bytes after its last tensor"));
}

// C51: the module stays as it was, also when the file shrinks after it was opened.
TEST_F(SafetensorsFileTest, LeavesTheModuleUntouchedWhenTheFileShrinksAfterOpening) {
  const auto file =
      SafetensorsFile::open(write(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                  four(1) + four(2)));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  const at::Tensor a = floats({1}, 7);
  try {
    file.load_into({{"a", a}, {"b", floats({1}, 7)}});
    FAIL() << "was accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'b'"), HasSubstr("truncated")));
  }
  EXPECT_EQ(a.item<float>(), 7.0F);
}

TEST_F(SafetensorsFileTest, RefusesWhatIsNotAFile) {
  EXPECT_THAT(refusal(), HasSubstr("cannot be opened"));
  EXPECT_THROW(static_cast<void>(SafetensorsFile::open(std::filesystem::temp_directory_path())),
               CheckpointError);
}

TEST_F(SafetensorsFileTest, FillsAModuleAndConvertsFloats) {
  const auto file =
      SafetensorsFile::open(write(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                                  std::string("\x80\x3f\x00\xc0", 4)));
  const at::Tensor w = floats({2}, 0);
  file.load_into({{"w", w}});
  EXPECT_EQ(w.const_data_ptr<float>()[0], 1.0F);
  EXPECT_EQ(w.const_data_ptr<float>()[1], -2.0F);
}

TEST_F(SafetensorsFileTest, RefusesAModuleThatDiffersBeforeWritingAnything) {
  const auto file =
      SafetensorsFile::open(write(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                  four(1) + four(2)));
  const at::Tensor a = floats({1}, 7);
  const auto refused = [&](const std::vector<NamedTensor>& tensors) -> std::string {
    try {
      file.load_into(tensors);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused({{"a", a}}), HasSubstr("'b': is in the file but not in the module"));
  EXPECT_THAT(refused({{"a", a}, {"b", a}, {"c", a}}), HasSubstr("'c': is not in the file"));
  EXPECT_THAT(refused({{"a", a}, {"b", floats({2}, 7)}}),
              HasSubstr("'b': has shape [1] in the file, [2] in the module"));
  EXPECT_THAT(refused({{"a", a}, {"b", floats({1}, 7, c10::ScalarType::Long)}}),
              HasSubstr("'b': is Float in the file, Long in the module"));
  EXPECT_EQ(a.item<float>(), 7.0F);
}

}  // namespace
}  // namespace offstage

// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>

#include <gtest/gtest.h>

#include <type_traits>

namespace offstage {
namespace {

TEST(ErrorTest, EveryErrorIsCaughtAsErrorAndAsRuntimeError) {
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  static_assert(std::is_base_of_v<Error, InvalidArgument>);
  static_assert(std::is_base_of_v<Error, PolicyError>);
  static_assert(std::is_base_of_v<Error, StateError>);
  static_assert(std::is_base_of_v<Error, StagingError>);
  static_assert(std::is_base_of_v<Error, TelemetryError>);
  static_assert(std::is_base_of_v<Error, HostMemoryError>);
  static_assert(std::is_base_of_v<Error, CheckpointError>);
  EXPECT_THROW(throw StagingError("blocks.1.weight: is a meta tensor"), Error);
}

TEST(ErrorTest, PolicyErrorNamesPlaceExpectedAndFound) {
  const PolicyError error("/text_encoder", "true or false", "0");
  EXPECT_EQ(error.pointer(), "/text_encoder");
  EXPECT_EQ(error.expected(), "true or false");
  EXPECT_EQ(error.found(), "0");
  EXPECT_STREQ(error.what(),
               "component policy: at '/text_encoder': expected true or false, found 0");
}

TEST(ErrorTest, PolicyErrorAboutTheWholeDocumentSaysSo) {
  EXPECT_STREQ(PolicyError("", "an object", "[1]").what(),
               "component policy: at the document: expected an object, found [1]");
}

}  // namespace
}  // namespace offstage

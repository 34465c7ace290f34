// SPDX-License-Identifier: Apache-2.0
#include "log_capture.hpp"

#include <offstage/base/error.hpp>
#include <offstage/observe/log_sink.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace offstage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

TEST(LogSinkTest, ADecisionIsOneLineWithItsReasonDurationAndFigures) {
  const std::array<EventFigure, 2> figures{{{"cached", 30}, {"bound", 25}}};
  EXPECT_EQ(to_line({.kind = EventKind::kRetentionDecided,
                     .device = kDevice,
                     .reason = "cached_over_bound",
                     .bytes = 30,
                     .duration = std::chrono::nanoseconds(1'540),
                     .figures = figures}),
            "retention_decided device=cuda:0 reason=cached_over_bound bytes=30 us=1.5 cached=30 "
            "bound=25");
}

TEST(LogSinkTest, WhatAnEventDoesNotHaveIsNotInItsLine) {
  EXPECT_EQ(to_line({.kind = EventKind::kGradEnabled}), "grad_enabled");
  EXPECT_EQ(to_line({.kind = EventKind::kComponentLoaded, .component = "vae", .bytes = 7}),
            "component_loaded component=vae bytes=7");
}

TEST(LogSinkTest, TheMessageComesLast) {
  EXPECT_EQ(to_line({.kind = EventKind::kTelemetryFailed,
                     .device = kDevice,
                     .reason = "device_memory",
                     .message = "no figures {}; releasing %s"}),
            "telemetry_failed device=cuda:0 reason=device_memory: no figures {}; releasing %s");
}

TEST(LogSinkTest, ControlCharactersOfNamesAndMessagesDoNotBreakTheLine) {
  EXPECT_EQ(to_line({.kind = EventKind::kErrorDropped,
                     .component = "vae\nfake_event",
                     .message = "first\nsecond\r\n\x1b[31mred\x7f"}),
            "error_dropped component=vae\\nfake_event: first\\nsecond\\x0d\\n\\x1b[31mred\\x7f");
}

TEST(LogSinkTest, WritesToTheLoggerOfItsNameAtTheLevelOfTheKind) {
  const LogCapture capture("pipeline");
  LogSink sink("pipeline");
  sink.set_level(LogLevel::kDebug);
  sink.on_event({.kind = EventKind::kRetentionDecided, .reason = "within_bounds"});
  sink.on_event({.kind = EventKind::kTelemetryFailed, .message = "no {} figures"});
  sink.on_event({.kind = EventKind::kReleaseFailed});
  EXPECT_THAT(capture.lines(),
              ElementsAre("debug: retention_decided reason=within_bounds",
                          "warning: telemetry_failed: no {} figures", "error: release_failed"));
}

TEST(LogSinkTest, ByDefaultWhatGoesRightIsNotLogged) {
  const LogCapture capture("default");
  LogSink sink("default");
  sink.on_event({.kind = EventKind::kRetentionDecided});
  sink.on_event({.kind = EventKind::kComponentLoaded});
  EXPECT_THAT(capture.lines(), IsEmpty());
  sink.on_event({.kind = EventKind::kPinningFailed});
  EXPECT_THAT(capture.lines(), ElementsAre("warning: pinning_failed"));
}

TEST(LogSinkTest, TheLevelCanBeRaisedToNothing) {
  const LogCapture capture("quiet");
  LogSink sink("quiet");
  sink.set_level(LogLevel::kError);
  sink.on_event({.kind = EventKind::kPinningFailed});
  EXPECT_THAT(capture.lines(), IsEmpty());
  sink.on_event({.kind = EventKind::kErrorDropped});
  EXPECT_THAT(capture.lines(), ElementsAre("error: error_dropped"));
  sink.set_level(LogLevel::kOff);
  EXPECT_EQ(capture.level(), "off");
  sink.on_event({.kind = EventKind::kErrorDropped});
  EXPECT_EQ(capture.lines().size(), 1U);
}

TEST(LogSinkTest, OnlyWhatGoesRightIsBelowAWarning) {
  std::set<EventKind> debug;
  for (int value = 0; value <= static_cast<int>(EventKind::kErrorDropped); ++value) {
    const auto kind = static_cast<EventKind>(value);
    if (level_of(kind) == LogLevel::kDebug) debug.insert(kind);
  }
  EXPECT_THAT(debug, ElementsAre(EventKind::kComponentLoaded, EventKind::kComponentOffloaded,
                                 EventKind::kRetentionDecided, EventKind::kHostCacheDecided));
  EXPECT_EQ(level_of(EventKind::kTelemetryFailed), LogLevel::kWarning);
  EXPECT_EQ(level_of(EventKind::kSlabQuarantined), LogLevel::kError);
}

TEST(LogSinkTest, ALoggerThatThereIsNotIsMadeAndSharedByTheNextSink) {
  ASSERT_FALSE(LogCapture::is_registered("made"));
  const LogSink first("made");
  EXPECT_TRUE(LogCapture::is_registered("made"));
  const LogSink second("made");
  LogCapture::forget("made");
}

TEST(LogSinkTest, AMadeLoggerHasTheThresholdThatTheProgramGaveToAll) {
  LogCapture::set_level_of_all("error");
  LogSink strict("made_strict");
  ::testing::internal::CaptureStderr();
  strict.on_event({.kind = EventKind::kPinningFailed});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  LogCapture::set_level_of_all("info");
  LogCapture::forget("made_strict");
}

TEST(LogSinkTest, AMadeLoggerWritesToTheErrorOutput) {
  LogSink sink("to_stderr");
  ::testing::internal::CaptureStderr();
  sink.on_event({.kind = EventKind::kReleaseFailed, .message = "the driver is gone"});
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(written, HasSubstr("release_failed: the driver is gone\n"));
  LogCapture::forget("to_stderr");
}

TEST(LogSinkTest, ThreadsThatMakeOneLoggerAllGetIt) {
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] { EXPECT_NO_THROW(LogSink("contended")); });
  }
  for (std::thread& thread : threads) thread.join();
  LogCapture::forget("contended");
}

TEST(LogSinkTest, ALoggerThatFailsDoesNotFailTheSender) {
  LogCapture capture("broken");
  LogSink sink("broken");
  capture.break_down();
  ::testing::internal::CaptureStderr();  // Where spdlog reports it, once a second.
  sink.on_event({.kind = EventKind::kReleaseFailed});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the disk is full"));
  EXPECT_THAT(capture.lines(), IsEmpty());
}

// spdlog lets what is no std::exception through.
TEST(LogSinkTest, ALoggerThatThrowsAnythingDoesNotFailTheSender) {
  LogCapture capture("throwing");
  LogSink sink("throwing");
  capture.break_down(/*standard=*/false);
  sink.on_event({.kind = EventKind::kReleaseFailed});
  EXPECT_THAT(capture.lines(), IsEmpty());
}

TEST(LogSinkTest, WithoutAutomaticRegistrationTheProgramsLoggerIsFoundAndAnotherRegistered) {
  LogCapture::set_automatic_registration(false);
  {
    const LogCapture capture("by_hand");
    LogSink sink("by_hand");
    sink.on_event({.kind = EventKind::kReleaseFailed});
    EXPECT_THAT(capture.lines(), ElementsAre("error: release_failed"));
    const LogSink other("made_by_hand");
    EXPECT_TRUE(LogCapture::is_registered("made_by_hand"));
    LogCapture::forget("made_by_hand");
  }
  LogCapture::set_automatic_registration(true);
}

TEST(LogSinkTest, ALoggerNeedsAName) {
  EXPECT_THROW(LogSink(""), InvalidArgument);
}

}  // namespace
}  // namespace offstage

// SPDX-License-Identifier: Apache-2.0
#include "log_capture.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <stdexcept>

namespace offstage {

struct LogCapture::State final : spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (is_broken && is_standard) throw std::runtime_error("the disk is full");
    if (is_broken) throw 42;
    const auto level = spdlog::level::to_string_view(message.level);
    lines.push_back(std::string(level.data(), level.size()) + ": " +
                    std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

  std::vector<std::string> lines;
  bool is_broken = false;
  bool is_standard = true;
};

LogCapture::LogCapture(const std::string& name) : name_(name), state_(std::make_shared<State>()) {
  spdlog::register_logger(std::make_shared<spdlog::logger>(name, state_));
}

LogCapture::~LogCapture() {
  forget(name_);
}

std::vector<std::string> LogCapture::lines() const {
  return state_->lines;
}

void LogCapture::break_down(bool standard) {
  state_->is_broken = true;
  state_->is_standard = standard;
}

void LogCapture::set_level_of_all(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level));
}

void LogCapture::set_automatic_registration(bool automatic) {
  spdlog::set_automatic_registration(automatic);
}

std::string LogCapture::level() const {
  const auto level = spdlog::level::to_string_view(spdlog::get(name_)->level());
  return {level.data(), level.size()};
}

bool LogCapture::is_registered(const std::string& name) {
  return spdlog::get(name) != nullptr;
}

void LogCapture::forget(const std::string& name) {
  spdlog::drop(name);
}

}  // namespace offstage

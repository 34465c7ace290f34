// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator_fixture.hpp"

#include <functional>
#include <string>

namespace offstage::testing {

/// For tests that look at what a race report says.
class RaceTest : public SimulatorTest {
 protected:
  std::string race_of(const std::function<void()>& body) const {
    try {
      body();
    } catch (const RaceError& error) {
      return error.what();
    }
    return "no race";
  }
};

}  // namespace offstage::testing

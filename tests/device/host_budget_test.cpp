// SPDX-License-Identifier: Apache-2.0
#include "fake_file_tree.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/host_budget.hpp>

#include <gmock/gmock.h>

#include <filesystem>
#include <utility>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostBudgetTest : public ::testing::Test {
 protected:
  HostBudget read(std::int64_t reserve_bytes = 0) const {
    return read_host_budget({.reserve_bytes = reserve_bytes, .root = files.root()});
  }
  HostBudget read_to_lock() const {
    return read_host_budget({.reserve_bytes = 0, .bound_by_memlock = true, .root = files.root()});
  }
  std::string failure(bool bound_by_memlock = false) const {
    try {
      static_cast<void>(read_host_budget(
          {.reserve_bytes = 0, .bound_by_memlock = bound_by_memlock, .root = files.root()}));
    } catch (const HostMemoryError& error) {
      return error.what();
    }
    return "read";
  }

  FakeFileTree files;
};

TEST_F(HostBudgetTest, WithoutControlGroupsIsWhatTheKernelSaysIsAvailable) {
  const HostBudget budget = read();
  EXPECT_EQ(budget.bytes, 20 * kGiB);
  EXPECT_EQ(budget.decided_by, "MemAvailable of /proc/meminfo");
}

TEST_F(HostBudgetTest, LeavesTheReserveAlone) {
  EXPECT_EQ(read(3 * kGiB).bytes, 17 * kGiB);
  EXPECT_EQ(read_host_budget({.root = files.root()}).bytes, 19 * kGiB) << "1 GiB unless told";
  EXPECT_EQ(read(21 * kGiB).bytes, 0) << "never negative";
}

// case C20: of 6 GiB in use 5 are file cache.
TEST_F(HostBudgetTest, FileCacheOfTheContainerIsNotInUse) {
  files.set_group("/");
  files.set_limit("", std::to_string(8 * kGiB), 6 * kGiB, 2 * kGiB, 3 * kGiB);
  const HostBudget budget = read(kGiB);
  EXPECT_EQ(budget.bytes, 6 * kGiB);
  EXPECT_EQ(budget.decided_by, "memory.max of /sys/fs/cgroup");
}

// case C20
TEST_F(HostBudgetTest, TheKernelsFigureWinsIfItIsLess) {
  files.set_group("/");
  files.set_limit("", std::to_string(8 * kGiB), 6 * kGiB, 2 * kGiB, 3 * kGiB);
  files.set_available(5 * kGiB);
  EXPECT_EQ(read().bytes, 5 * kGiB);
  EXPECT_EQ(read().decided_by, "MemAvailable of /proc/meminfo");
}

// case C20
TEST_F(HostBudgetTest, MaxIsNoLimit) {
  files.set_group("/a");
  files.set_limit("/a", "max", 6 * kGiB, 0, 0);
  EXPECT_EQ(read().bytes, 20 * kGiB);
}

// case C20: a nested tighter parent wins.
TEST_F(HostBudgetTest, TheTightestOfAllParentsWins) {
  files.set_group("/a/b/c");
  files.set_limit("/a/b/c", std::to_string(9 * kGiB), kGiB, 0, 0);
  files.set_limit("/a/b", std::to_string(5 * kGiB), 2 * kGiB, 0, 0);
  files.set_limit("/a", std::to_string(7 * kGiB), 3 * kGiB, 0, 0);
  EXPECT_EQ(read().bytes, 3 * kGiB);
  EXPECT_EQ(read().decided_by, "memory.max of /sys/fs/cgroup/a/b");
  files.set_limit("/a", std::to_string(7 * kGiB), 6 * kGiB, 0, 0);
  EXPECT_EQ(read().bytes, kGiB);
  files.set_limit("", std::to_string(kGiB), kGiB / 2, 0, 0);
  EXPECT_EQ(read().bytes, kGiB / 2) << "up to the root";
}

TEST_F(HostBudgetTest, ASiblingWithALongerNameIsNoParent) {
  files.set_group("/ab");
  files.set_limit("/a", std::to_string(kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, 20 * kGiB);
}

// case C20
TEST_F(HostBudgetTest, MissingFilesMeanTheKernelsFigure) {
  files.set_group("/a");
  EXPECT_EQ(read().bytes, 20 * kGiB) << "no control group there";
  files.set_limit("/a", std::to_string(8 * kGiB), 6 * kGiB, 5 * kGiB, 0);
  files.remove("/sys/fs/cgroup/a/memory.current");
  EXPECT_EQ(read().bytes, 20 * kGiB);
  files.set_limit("/a", std::to_string(8 * kGiB), 6 * kGiB, 5 * kGiB, 0);
  files.remove("/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(read().bytes, 20 * kGiB);
  files.set_limit("/a", std::to_string(8 * kGiB), 6 * kGiB, 5 * kGiB, 0);
  files.remove("/proc/self/cgroup");
  EXPECT_EQ(read().bytes, 20 * kGiB);
}

TEST_F(HostBudgetTest, WithoutStatisticsNothingInUseIsReclaimable) {
  files.set_group("/a");
  files.set_limit("/a", std::to_string(8 * kGiB), 6 * kGiB, 5 * kGiB, 0);
  files.remove("/sys/fs/cgroup/a/memory.stat");
  EXPECT_EQ(read().bytes, 2 * kGiB);
}

TEST_F(HostBudgetTest, AContainerBeyondItsLimitHasNothingAndMoreCacheThanUseIsAllOfIt) {
  files.set_group("/a");
  files.set_limit("/a", std::to_string(2 * kGiB), 3 * kGiB, 0, 0);
  EXPECT_EQ(read().bytes, 0);
  files.set_limit("/a", std::to_string(2 * kGiB), kGiB, kGiB, kGiB);
  EXPECT_EQ(read().bytes, 2 * kGiB);
}

// In the hybrid layout version 2 is mounted beside version 1.
TEST_F(HostBudgetTest, ControlGroupsAreReadWhereTheyAreMounted) {
  files.set_group("/a");
  files.write("/proc/self/mountinfo",
              "30 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "31 25 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n");
  files.set_limit("/a", std::to_string(kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, 20 * kGiB) << "not where they usually are";
  files.set_limit("/unified/a", std::to_string(2 * kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, 2 * kGiB);
  files.write("/proc/self/mountinfo", "30 25 0:27 / /proc rw - proc proc rw\n");
  EXPECT_EQ(read().bytes, 20 * kGiB) << "not mounted at all";
}

// A container without a name space of its own: the mount shows its group and nothing above.
TEST_F(HostBudgetTest, AGroupThatIsTheTopOfTheMountIsFoundThere) {
  files.set_group("/docker/1234");
  files.write("/proc/self/mountinfo",
              "31 25 0:28 /docker/1234 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  files.set_limit("", std::to_string(2 * kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, 2 * kGiB);
}

TEST_F(HostBudgetTest, AGroupBelowTheTopOfTheMountIsFoundBelowIt) {
  files.set_group("/docker/1234/job");
  files.write("/proc/self/mountinfo",
              "31 25 0:28 /docker/1234 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  files.set_limit("", std::to_string(2 * kGiB), 0, 0, 0);
  files.set_limit("/job", std::to_string(kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, kGiB);
}

TEST_F(HostBudgetTest, AMountWithTheBeginningOfTheGroupsNameIsNotAboveIt) {
  files.set_group("/docker/1234");
  files.write("/proc/self/mountinfo",
              "31 25 0:28 /docker/12 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  files.set_limit("/docker/1234", std::to_string(kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, kGiB);
}

TEST_F(HostBudgetTest, AGroupOutsideOfTheMountIsBoundByTheTopOfTheMount) {
  files.set_group("/../other");
  files.set_limit("", std::to_string(2 * kGiB), 0, 0, 0);
  files.set_limit("/other", std::to_string(kGiB), 0, 0, 0);
  files.set_limit("/../other", std::to_string(kGiB), 0, 0, 0);
  EXPECT_EQ(read().bytes, 2 * kGiB);
}

TEST_F(HostBudgetTest, WhatIsGivenBackMeanwhileCountsAsAvailable) {
  const auto read_releasing = [&](std::int64_t released_bytes) {
    return read_host_budget(
        {.reserve_bytes = kGiB, .released_bytes = released_bytes, .root = files.root()});
  };
  EXPECT_EQ(read_releasing(4 * kGiB).bytes, 23 * kGiB);
  files.set_available(kGiB / 2);
  EXPECT_EQ(read_releasing(0).bytes, 0);
  EXPECT_EQ(read_releasing(4 * kGiB).bytes, 3 * kGiB + kGiB / 2)
      << "the reserve is taken off once, and not off nothing";
}

TEST_F(HostBudgetTest, TheLimitOfLockedMemoryCountsForThoseWhoAreBoundByIt) {
  files.set_lock_limit(std::to_string(8 * kMiB), 3 * kMiB);
  EXPECT_EQ(read().bytes, 20 * kGiB);
  EXPECT_EQ(read_to_lock().bytes, 5 * kMiB);
  EXPECT_EQ(read_to_lock().decided_by, "RLIMIT_MEMLOCK");
  files.set_lock_limit("unlimited", 3 * kMiB);
  EXPECT_EQ(read_to_lock().bytes, 20 * kGiB);
  files.set_lock_limit(std::to_string(8 * kMiB), 9 * kMiB);
  EXPECT_EQ(read_to_lock().bytes, 0);
}

TEST_F(HostBudgetTest, AProcessThatMayLockIsNotBoundByTheLimit) {
  files.set_lock_limit(std::to_string(8 * kMiB), 0, "0000000000004000");
  EXPECT_EQ(read_to_lock().bytes, 20 * kGiB);
  files.set_lock_limit(std::to_string(8 * kMiB), 0, "ffffffffffffbfff");
  EXPECT_EQ(read_to_lock().bytes, 8 * kMiB);
}

TEST_F(HostBudgetTest, AFileThatDoesNotReadAsItShouldIsNamedWithWhatIsInIt) {
  files.set_group("/a");
  const auto with = [&](const std::string& path, const std::string& text) {
    files.set_limit("/a", std::to_string(8 * kGiB), 6 * kGiB, 0, 0);
    files.write(path, text);
    return failure();
  };
  EXPECT_EQ(with("/sys/fs/cgroup/a/memory.max", "8G\n"),
            "host budget: /sys/fs/cgroup/a/memory.max: expected 'max' or a number of bytes, found "
            "'8G'");
  EXPECT_THAT(with("/sys/fs/cgroup/a/memory.max", ""), HasSubstr("memory.max: expected"));
  EXPECT_THAT(with("/sys/fs/cgroup/a/memory.max", "-1"), HasSubstr("found '-1'"));
  EXPECT_THAT(with("/sys/fs/cgroup/a/memory.current", "many"),
              AllOf(HasSubstr("memory.current"), HasSubstr("found 'many'")));
  EXPECT_THAT(with("/sys/fs/cgroup/a/memory.stat", "inactive_file lots\n"),
              AllOf(HasSubstr("memory.stat"), HasSubstr("'inactive_file BYTES', found 'lots'")));
  EXPECT_THAT(with("/proc/self/cgroup", "0::relative\n"), HasSubstr("found 'relative'"));
}

TEST_F(HostBudgetTest, TheKernelsFigureMustBeThere) {
  files.write("/proc/meminfo", "MemTotal: 5 kB\n");
  EXPECT_EQ(failure(),
            "host budget: /proc/meminfo: expected a line 'MemAvailable: NUMBER kB', found 'no such "
            "line'");
  files.write("/proc/meminfo", "MemAvailable: 5 pages\n");
  EXPECT_THAT(failure(), HasSubstr("found '5 pages'"));
  files.write("/proc/meminfo", "MemAvailable: 5.5 kB\n");
  EXPECT_THAT(failure(), HasSubstr("found '5.5 kB'"));
  files.remove("/proc/meminfo");
  EXPECT_EQ(failure(), "host budget: /proc/meminfo is missing");
}

TEST_F(HostBudgetTest, TheFilesOfTheLockLimitMustBeThereForThoseWhoAreBoundByIt) {
  EXPECT_EQ(failure(true), "host budget: /proc/self/status is missing");
  files.set_lock_limit("much", 0);
  EXPECT_THAT(failure(true), AllOf(HasSubstr("/proc/self/limits"), HasSubstr("found 'much")));
  files.set_lock_limit("8192", 0, "root");
  EXPECT_THAT(failure(true), HasSubstr("expected a line 'CapEff: MASK', found 'root'"));
  files.write("/proc/self/limits", "");
  files.write("/proc/self/status", "CapEff:\t0\n");
  EXPECT_THAT(failure(true), HasSubstr("/proc/self/limits"));
}

// A limit such as 2^63 - 4096 is what some systems write for "none", and 2^64 overflows.
TEST_F(HostBudgetTest, LimitsBeyondAllNumbersAreNoLimits) {
  files.set_group("/a");
  files.set_limit("/a", "18446744073709551616", 0, 0, 0);
  EXPECT_EQ(read().bytes, 20 * kGiB);
  files.set_limit("/a", "9223372036854771712", 0, 0, 0);
  EXPECT_EQ(read().bytes, 20 * kGiB);
}

TEST_F(HostBudgetTest, NegativeOptionsAreRefused) {
  EXPECT_THROW(static_cast<void>(read(-1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(read_host_budget({.released_bytes = -1})), InvalidArgument);
}

TEST_F(HostBudgetTest, TheFilesOfThisMachineCanBeRead) {
  EXPECT_GE(read_host_budget({.bound_by_memlock = true}).bytes, 0);
  EXPECT_FALSE(read_host_budget().decided_by.empty());
}

TEST_F(HostBudgetTest, AFileThatCannotBeReadIsNamed) {
  std::filesystem::create_directories(files.root() + "/sys/fs/cgroup/memory.max");
  files.set_group("/");
  files.write("/sys/fs/cgroup/memory.current", "0\n");
  try {
    static_cast<void>(read());
    FAIL() << "a folder was taken for no limit";
  } catch (const HostMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/sys/fs/cgroup/memory.max cannot be read"));
  }
}

}  // namespace
}  // namespace offstage

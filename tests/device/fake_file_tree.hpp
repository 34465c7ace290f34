// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A folder of files that stand for `/proc` and `/sys`.

#include <offstage/base/bytes.hpp>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <stdlib.h>
#include <string>

namespace offstage {

/// Begins with a `/proc/meminfo` of 20 GiB available; removed at the end.
class FakeFileTree {
 public:
  FakeFileTree() {
    std::string folder = (std::filesystem::temp_directory_path() / "offstage-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for the test");
    root_ = folder;
    set_available(20 * kGiB);
  }
  ~FakeFileTree() { std::filesystem::remove_all(root_); }
  FakeFileTree(const FakeFileTree&) = delete;
  FakeFileTree& operator=(const FakeFileTree&) = delete;
  FakeFileTree(FakeFileTree&&) = delete;
  FakeFileTree& operator=(FakeFileTree&&) = delete;

  [[nodiscard]] const std::string& root() const { return root_; }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_ + path); }

  void set_available(std::int64_t bytes) const {
    write("/proc/meminfo",
          "MemTotal:       33554432 kB\nMemFree:            1024 kB\nMemAvailable:   " +
              std::to_string(bytes / kKiB) + " kB\nBuffers:               4 kB\n");
  }
  /// This process is in the control group `path`.
  void set_group(const std::string& path) const {
    write("/proc/self/cgroup", "9:name=systemd:/x\n0::" + path + "\n");
  }
  /// @param limit  "max" or a number of bytes.
  void set_limit(const std::string& group, const std::string& limit, std::int64_t use,
                 std::int64_t active_file, std::int64_t inactive_file) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(use) + "\n");
    write(folder + "/memory.stat", "anon 4096\nfile 99999999999\nactive_file " +
                                       std::to_string(active_file) + "\ninactive_file " +
                                       std::to_string(inactive_file) + "\n");
  }
  /// @param limit  "unlimited" or a number of bytes.
  void set_lock_limit(const std::string& limit, std::int64_t locked,
                      const std::string& capabilities = "0000000000000000") const {
    write("/proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max processes             31432                31432                processes \n"
          "Max locked memory         " +
              limit + "              unlimited            bytes     \n");
    write("/proc/self/status", "Name:\ttest\nVmLck:\t      " + std::to_string(locked / kKiB) +
                                   " kB\nCapEff:\t" + capabilities + "\n");
  }

 private:
  std::string root_;
};

}  // namespace offstage

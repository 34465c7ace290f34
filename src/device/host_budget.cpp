// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/host_budget.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Files below a root folder. Paths start with a slash, and are what messages name.
class FileTree {
 public:
  explicit FileTree(std::string root) : root_(std::move(root)) {
    while (!root_.empty() && root_.back() == '/') root_.pop_back();
  }

  /// Nothing if there is no such file, or it may not be read.
  [[nodiscard]] std::optional<std::string> read(const std::string& path) const {
    std::ifstream file(root_ + path);
    if (!file) return std::nullopt;
    try {
      return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    } catch (const std::ios_base::failure&) {  // A folder, for one.
      throw HostMemoryError("host budget: " + path + " cannot be read");
    }
  }

  [[nodiscard]] std::string require(const std::string& path) const {
    std::optional<std::string> text = read(path);
    if (!text) throw HostMemoryError("host budget: " + path + " is missing");
    return *std::move(text);
  }

 private:
  std::string root_;
};

[[noreturn]] void fail(const std::string& path, const std::string& expected,
                       std::string_view found) {
  throw HostMemoryError("host budget: " + path + ": expected " + expected + ", found '" +
                        std::string(found.substr(0, 80)) + "'");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!(text = trimmed(text)).empty()) {
    const auto end = std::min(text.find_first_of(" \t\r\n"), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The rest of the line that starts with `key`.
std::optional<std::string_view> line_of(std::string_view text, std::string_view key) {
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
  }
  return std::nullopt;
}

/// A number of `unit` bytes.
std::int64_t bytes_of(std::string_view word, std::int64_t unit, const std::string& path,
                      const std::string& expected, std::string_view context) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc::result_out_of_range && !word.starts_with('-')) return kUnlimited;
  if (error != std::errc() || end != word.data() + word.size() || value < 0) {
    fail(path, expected, context);
  }
  return value > kUnlimited / unit ? kUnlimited : value * unit;
}

/// A figure such as "MemAvailable:   22066044 kB".
std::int64_t kilobytes_of(const FileTree& files, const std::string& path, std::string_view key) {
  const std::string text = files.require(path);
  const std::string expected = "a line '" + std::string(key) + " NUMBER kB'";
  const auto line = line_of(text, key);
  if (!line) fail(path, expected, "no such line");
  const auto words = words_of(*line);
  if (words.size() != 2 || words[1] != "kB") fail(path, expected, *line);
  return bytes_of(words[0], kKiB, path, expected, *line);
}

std::int64_t file_cache_of(const FileTree& files, const std::string& path) {
  const std::optional<std::string> text = files.read(path);
  if (!text) return 0;
  std::int64_t sum = 0;
  for (const std::string_view key : {"active_file ", "inactive_file "}) {
    const auto line = line_of(*text, key);
    if (line) sum += bytes_of(*line, 1, path, "'" + std::string(key) + "BYTES'", *line);
  }
  return sum;
}

/// What one control group leaves; nothing if it sets no limit.
std::optional<std::int64_t> left_by_group(const FileTree& files, const std::string& folder) {
  const std::string max_path = folder + "/memory.max";
  const std::string use_path = folder + "/memory.current";
  const auto max_text = files.read(max_path);
  const auto use_text = files.read(use_path);
  if (!max_text || !use_text || trimmed(*max_text) == "max") return std::nullopt;
  const std::int64_t limit =
      bytes_of(trimmed(*max_text), 1, max_path, "'max' or a number of bytes", trimmed(*max_text));
  const std::int64_t use =
      bytes_of(trimmed(*use_text), 1, use_path, "a number of bytes", trimmed(*use_text));
  const std::int64_t cache = file_cache_of(files, folder + "/memory.stat");
  return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, use - cache));
}

/// Where control groups version 2 are mounted, and which of them is at the top there.
struct GroupMount {
  std::string folder = "/sys/fs/cgroup";
  std::string top = "/";
};

std::optional<GroupMount> find_group_mount(const FileTree& files) {
  const auto text = files.read("/proc/self/mountinfo");
  if (!text) return GroupMount();
  for (const std::string_view line : lines_of(*text)) {
    const auto separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    if (!line.substr(separator + 3).starts_with("cgroup2 ")) continue;
    const auto words = words_of(line.substr(0, separator));
    if (words.size() >= 5) return GroupMount{std::string(words[4]), std::string(words[3])};
  }
  return std::nullopt;
}

/// The folder of this process's control group and its parents, up to where they are mounted.
std::vector<std::string> group_folders(const FileTree& files) {
  const auto groups = files.read("/proc/self/cgroup");
  if (!groups) return {};
  const auto own = line_of(*groups, "0::");
  const auto mount = find_group_mount(files);
  if (!own || !mount) return {};
  std::string path(*own);
  if (!path.starts_with('/')) fail("/proc/self/cgroup", "a line '0::/PATH'", *own);
  // A container may see only a part of the tree, with its own group at the top.
  if ((path + '/').starts_with(mount->top + '/')) path.erase(0, mount->top.size());
  if (path.find("/..") != std::string::npos) path.clear();  // Outside of what is mounted here.
  std::vector<std::string> folders;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    folders.push_back(mount->folder + path);
    if (path.empty()) return folders;
    path.erase(std::min(path.rfind('/'), path.size()));
  }
}

/// What RLIMIT_MEMLOCK leaves.
std::int64_t left_to_lock(const FileTree& files) {
  const std::string status = files.require("/proc/self/status");
  constexpr unsigned kMayLock = 14;  // CAP_IPC_LOCK.
  const auto capabilities = line_of(status, "CapEff:");
  if (!capabilities) fail("/proc/self/status", "a line 'CapEff: MASK'", "no such line");
  std::uint64_t mask = 0;
  const char* const end = capabilities->data() + capabilities->size();
  if (std::from_chars(capabilities->data(), end, mask, 16).ptr != end) {
    fail("/proc/self/status", "a line 'CapEff: MASK'", *capabilities);
  }
  if ((mask >> kMayLock & 1U) != 0) return kUnlimited;

  const std::string path = "/proc/self/limits";
  const std::string expected = "a line 'Max locked memory SOFT HARD bytes'";
  const std::string limits = files.require(path);
  const auto line = line_of(limits, "Max locked memory");
  if (!line) fail(path, expected, "no such line");
  const auto words = words_of(*line);
  if (words.empty()) fail(path, expected, *line);
  if (words[0] == "unlimited") return kUnlimited;
  const std::int64_t limit = bytes_of(words[0], 1, path, expected, *line);
  return std::max<std::int64_t>(0, limit - kilobytes_of(files, "/proc/self/status", "VmLck:"));
}

void require_not_negative(std::int64_t bytes, const char* name) {
  if (bytes >= 0) return;
  throw InvalidArgument("host budget: " + std::string(name) + " must not be negative, got " +
                        std::to_string(bytes));
}

}  // namespace

HostBudget read_host_budget(const HostBudgetOptions& options) {
  require_not_negative(options.reserve_bytes, "reserve_bytes");
  require_not_negative(options.released_bytes, "released_bytes");
  const FileTree files(options.root);
  HostBudget budget{kilobytes_of(files, "/proc/meminfo", "MemAvailable:"),
                    "MemAvailable of /proc/meminfo"};
  const auto consider = [&budget](std::int64_t bytes, std::string name) {
    if (bytes < budget.bytes) budget = {bytes, std::move(name)};
  };
  for (const std::string& folder : group_folders(files)) {
    if (const auto left = left_by_group(files, folder)) {
      consider(*left, "memory.max of " + folder);
    }
  }
  budget.bytes = std::min(budget.bytes, kUnlimited - options.released_bytes);
  budget.bytes =
      std::max<std::int64_t>(0, budget.bytes + options.released_bytes - options.reserve_bytes);
  if (options.bound_by_memlock) consider(left_to_lock(files), "RLIMIT_MEMLOCK");
  return budget;
}

OFFSTAGE_NAMESPACE_END

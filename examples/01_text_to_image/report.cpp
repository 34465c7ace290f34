// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <offstage/base/bytes.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

namespace text_to_image {

namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell; the first to the left, the others to the right.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      text += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += '\n';
  }
  return text;
}

std::string text_of(std::int64_t number) {
  return std::to_string(number);
}

std::string peak_of(const PartReport& part) {
  return part.peak_bytes ? mebibytes(*part.peak_bytes) : "-";
}

std::string cache_of(const PartReport& part) {
  return part.cache_decision.empty()
             ? "-"
             : part.cache_decision + " " + mebibytes(part.cache_bytes) + ": " + part.cache_reason;
}

std::string parts_text(const RunReport& report) {
  std::vector<Row> rows = {{"component", "", "tensors", "bytes", "loads", "allocations", "copies",
                            "copied bytes", "host waits", "allocator cache", "device peak"}};
  for (const PartReport& part : report.parts) {
    rows.push_back({part.path, part.residence, text_of(part.tensors), text_of(part.bytes),
                    text_of(part.loads), text_of(part.moved.allocations),
                    text_of(part.moved.copies), text_of(part.moved.bytes),
                    text_of(part.moved.host_waits), cache_of(part), peak_of(part)});
  }
  std::string retries;
  for (const PartReport& part : report.parts) {
    if (part.retries == 0) continue;
    retries += "  " + part.path +
               ": the cache was released and the load tried again, storage by storage\n";
  }
  return std::string("\nWhat the moves cost, counted by ") +
         (report.counted_by_device ? "the device" : "the stagers") + ":\n" + table(rows) + retries;
}

std::string comparison_text(const RunReport& report) {
  std::vector<Row> rows = {
      {"component", "offstage", "", "", "per storage", "", "", "per tensor", "", ""},
      {"", "allocations", "copies", "host waits", "allocations", "copies", "host waits",
       "allocations", "copies", "host waits"}};
  for (const PartReport& part : report.parts) {
    if (!part.by_tensor || !part.by_storage) continue;
    Row row = {part.path};
    for (const MoveCounts& counts : {part.moved, *part.by_storage, *part.by_tensor}) {
      row.push_back(text_of(counts.allocations));
      row.push_back(text_of(counts.copies));
      row.push_back(text_of(counts.host_waits));
    }
    rows.push_back(std::move(row));
  }
  if (rows.size() == 2) return "";
  return "\nOne load and offload by other schemes, really run on the same device:\n" + table(rows);
}

nlohmann::ordered_json to_json(const MoveCounts& counts) {
  return {{"allocations", counts.allocations},
          {"copies", counts.copies},
          {"bytes", counts.bytes},
          {"host_waits", counts.host_waits}};
}

template <class T>
void add(nlohmann::ordered_json& json, const char* key, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (std::is_same_v<T, MoveCounts>) {
    json[key] = to_json(*value);
  } else {
    json[key] = *value;
  }
}

}  // namespace

std::string mebibytes(std::int64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f MiB",
                static_cast<double>(bytes) / static_cast<double>(offstage::kMiB));
  return text;
}

std::string to_text(const RunReport& report) {
  std::string text;
  if (!report.note.empty()) text += report.note + "\n";
  text += "device: " + report.device;
  if (report.capacity) text += ", " + mebibytes(*report.capacity) + " of memory";
  text += "\n";
  if (!report.resident_sha256.empty()) {
    text += "resident, no limit:   pictures " + report.resident_sha256;
    if (report.resident_peak) text += ", device peak " + mebibytes(*report.resident_peak);
    text += "\n";
    if (report.capacity) {
      text += "resident, " + mebibytes(*report.capacity) + ":   " +
              (report.resident_error.empty() ? "fits as well"
                                             : "OUT OF MEMORY: " + report.resident_error) +
              "\n";
    }
    text += "staged" + (report.capacity ? ", " + mebibytes(*report.capacity) : std::string()) +
            ":     pictures " + report.sha256;
    if (report.staged_peak) text += ", device peak " + mebibytes(*report.staged_peak);
    text += "\n";
    text += "The pictures are identical, byte for byte.\n";
  } else {
    text += "pictures " + report.sha256 + "\n";
  }
  if (report.verified) {
    text +=
        "verified: the masters were unreadable while the components ran, freed device memory "
        "was poisoned, and the masters are unchanged\n";
  }
  if (!report.resident_sha256.empty()) {
    text += parts_text(report) + comparison_text(report);
  }
  text += "\n";
  for (std::size_t i = 0; i < report.prompts.size(); ++i) {
    text += "  " + text_of(static_cast<std::int64_t>(i) + 1) + ". " + report.prompts[i] + "\n";
  }
  return text + "written: " + report.output + "\n";
}

std::string to_json(const RunReport& report) {
  nlohmann::ordered_json json = {{"device", report.device},
                                 {"note", report.note},
                                 {"counted_by", report.counted_by_device ? "device" : "stagers"},
                                 {"retention", report.retention},
                                 {"output", report.output},
                                 {"prompts", report.prompts},
                                 {"sha256", report.sha256},
                                 {"verified", report.verified}};
  add(json, "capacity", report.capacity);
  if (!report.resident_sha256.empty()) {
    json["resident_sha256"] = report.resident_sha256;
    json["identical"] = report.resident_sha256 == report.sha256;
  }
  if (report.capacity) json["resident_out_of_memory"] = !report.resident_error.empty();
  add(json, "resident_peak", report.resident_peak);
  add(json, "staged_peak", report.staged_peak);
  json["components"] = nlohmann::ordered_json::array();
  for (const PartReport& part : report.parts) {
    nlohmann::ordered_json item = {{"path", part.path},
                                   {"residence", part.residence},
                                   {"placement_reason", part.placement_reason},
                                   {"tensors", part.tensors},
                                   {"bytes", part.bytes},
                                   {"loads", part.loads},
                                   {"retries", part.retries},
                                   {"moved", to_json(part.moved)}};
    if (!part.cache_decision.empty()) {
      item["cache"] = {{"decision", part.cache_decision},
                       {"reason", part.cache_reason},
                       {"cached_bytes", part.cache_bytes}};
    }
    add(item, "peak_bytes", part.peak_bytes);
    add(item, "by_storage", part.by_storage);
    add(item, "by_tensor", part.by_tensor);
    json["components"].push_back(std::move(item));
  }
  // A path need not be UTF-8, JSON must be.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace text_to_image

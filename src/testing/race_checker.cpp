// SPDX-License-Identifier: Apache-2.0
#include "race_checker.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

std::string hexadecimal(Address address) {
  char text[2 + 2 * sizeof(Address) + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

Accesses whole_block(Address begin, Address end) {
  const auto bytes = static_cast<std::int64_t>(end - begin);
  return {{.layout = ByteLayout(begin, {bytes}, {1}, 1), .reads = false, .writes = true}};
}

}  // namespace

/// A task that is looked at, and what has happened before it.
struct RaceChecker::Suspect {
  ActorId actor = kHost;
  const std::string& name;
  const Accesses& accesses;
  VectorClock seen;
  bool frees = false;
  bool only_lifetimes = false;  // What is in use is not looked at.
};

RaceChecker::RaceChecker() : names_{"host"}, clocks_(1) {}

ActorId RaceChecker::add_actor(std::string name) {
  names_.push_back(std::move(name));
  clocks_.emplace_back();
  return names_.size() - 1;
}

VectorClock RaceChecker::clock_of(ActorId actor) const {
  VectorClock seen = clocks_[actor];
  seen.join(clocks_[kHost]);  // Whatever the host has waited for happened before it queues more.
  return seen;
}

VectorClock RaceChecker::snapshot(ActorId actor) const {
  return clock_of(actor);
}

void RaceChecker::wait(ActorId actor, const VectorClock& seen) {
  clocks_[actor].join(seen);
}

void RaceChecker::host_wait(const VectorClock& seen) {
  clocks_[kHost].join(seen);
}

void RaceChecker::allocate(ActorId actor, Address begin, Address end) {
  Touch freed;
  memory_.any_cell(begin, end, [&](Address /*first*/, const Cell& cell) {
    if (cell.state == MemoryState::kFreed) freed = cell.write;
    return true;
  });
  memory_.open_block(begin, end);
  note(actor, "allocation", whole_block(begin, end));
  memory_.set_fresh(begin, std::move(freed));
}

std::optional<RaceReport> RaceChecker::free(ActorId actor, Address begin, Address end,
                                            const VectorClock& seen) {
  static const std::string kName = "free";
  const Accesses accesses = whole_block(begin, end);
  Suspect suspect{actor, kName, accesses, clock_of(actor), /*frees=*/true};
  suspect.seen.join(seen);
  auto found = check(suspect);
  note(actor, kName, accesses);
  memory_.set_state(begin, MemoryState::kFreed);  // Its name stays, for uses after the free.
  return found;
}

void RaceChecker::forget(Address begin, Address end) {
  memory_.remove(begin, end);
}

void RaceChecker::watch_host(Address begin, Address end) {
  memory_.open_block(begin, end);
  memory_.reset(begin, end, MemoryState::kWritten);
}

std::optional<RaceReport> RaceChecker::check(ActorId actor, const std::string& name,
                                             const Accesses& accesses) const {
  return check(Suspect{actor, name, accesses, clock_of(actor)});
}

std::optional<RaceReport> RaceChecker::check_lifetimes(ActorId actor, const std::string& name,
                                                       const Accesses& accesses) const {
  return check(Suspect{actor, name, accesses, {}, /*frees=*/false, /*only_lifetimes=*/true});
}

bool RaceChecker::are_mapped(const Accesses& accesses) const {
  return std::ranges::all_of(accesses, [this](const Access& access) {
    const ByteLayout& layout = access.layout;
    if (!access.device || layout.empty()) return true;
    Address reached = layout.begin();
    const bool hole = memory_.any_cell(reached, layout.end(), [&](Address first, const Cell& cell) {
      return layout.touches(std::exchange(reached, cell.end), first);
    });
    return !hole && !layout.touches(reached, layout.end());
  });
}

void RaceChecker::add(ActorId actor, std::string name, Accesses accesses) {
  note(actor, std::move(name), std::move(accesses));
}

void RaceChecker::note(ActorId actor, std::string name, Accesses accesses) {
  VectorClock& clock = clocks_[actor];
  clock.join(clocks_[kHost]);
  clock.set(actor, clock[actor] + 1);
  const auto task = std::make_shared<const TaskRecord>(
      TaskRecord{actor, clock[actor], ++tasks_, std::move(name), std::move(accesses)});
  for (const Access& access : task->accesses) {
    if (access.layout.empty()) continue;
    if (access.writes) {
      const auto unwritten = unwritten_after(access, task->accesses);
      memory_.add_write({task, &access}, clocks_[kHost]);
      for (const auto& [begin, end] : unwritten) memory_.mark_unwritten(begin, end);
    } else if (access.reads) {
      memory_.add_read({task, &access}, clocks_[kHost]);
    }
  }
}

std::vector<std::pair<Address, Address>> RaceChecker::unwritten_after(
    const Access& copy, const Accesses& accesses) const {
  std::vector<std::pair<Address, Address>> stretches;
  if (copy.source < 0) return stretches;
  const ByteLayout& from = accesses[static_cast<std::size_t>(copy.source)].layout;
  const ByteLayout& to = copy.layout;
  if (copy.bytewise && from.dense() && to.dense()) {
    stretches = memory_.unwritten_in(from);
    for (auto& [begin, end] : stretches) {
      begin = begin - from.begin() + to.begin();
      end = end - from.begin() + to.begin();
    }
  } else if (!memory_.is_written_in(from)) {
    to.any_run([&](Address begin, Address end) {
      stretches.emplace_back(begin, end);
      return false;
    });
  }
  return stretches;
}

std::optional<RaceReport> RaceChecker::check(const Suspect& suspect) const {
  for (const Access& access : suspect.accesses) {
    if (access.layout.empty()) continue;
    if (auto found = check(suspect, access)) return found;
  }
  return std::nullopt;
}

std::optional<RaceReport> RaceChecker::check(const Suspect& suspect, const Access& access) const {
  auto found = check_cells(suspect, access);
  if (suspect.only_lifetimes) return found;
  if (found && found->kind != RaceKind::kNeverWritten && found->kind != RaceKind::kUnordered) {
    return found;
  }
  auto unordered = check_sparse_uses(suspect, access);
  if (!unordered) return found;
  // Of one stream's tasks the later is told: who waits for it has waited for both.
  const bool keeps = found && found->kind == RaceKind::kUnordered &&
                     (found->first.stream != unordered->first.stream ||
                      found->first.number > unordered->first.number);
  return keeps ? found : unordered;
}

std::optional<RaceReport> RaceChecker::check_cells(const Suspect& suspect,
                                                   const Access& access) const {
  const ByteLayout& layout = access.layout;
  std::optional<RaceReport> found;
  std::optional<RaceReport> unwritten;  // Of a read of some: what it may be about.
  Address reached = layout.begin();
  memory_.any_cell(layout.begin(), layout.end(), [&](Address first, const Cell& cell) {
    const Address begin = std::max(first, layout.begin());
    const Address end = std::min(cell.end, layout.end());
    if (first > reached && layout.touches(reached, first)) return true;
    reached = cell.end;
    const auto is = [&](RaceKind kind, const Touch& touch, bool writes) {
      found = report(kind, suspect, access, touch.task ? &touch : nullptr, writes, begin, end);
      return true;
    };
    const auto unordered = [&](const Touch& touch) {
      ++comparisons_;
      return suspect.seen[touch.actor()] < touch.number() && layout.touches(begin, end);
    };
    if (cell.state == MemoryState::kFreed && layout.touches(begin, end)) {
      return is(RaceKind::kUseAfterFree, cell.write, true);
    }
    if (suspect.only_lifetimes) return false;
    if (cell.write.task && unordered(cell.write)) {
      return is(RaceKind::kUnordered, cell.write, true);
    }
    if (access.writes) {
      for (const Touch& read : cell.reads) {
        if (unordered(read)) return is(RaceKind::kUnordered, read, false);
      }
    }
    if (cell.state == MemoryState::kAllocated && access.reads && !access.may_be_unwritten &&
        layout.touches(begin, end)) {
      if (unwritten) return false;
      is(RaceKind::kNeverWritten, cell.write, true);
      found->text += history_of(cell);
      if (!access.reads_some) return true;
      unwritten = std::exchange(found, std::nullopt);
    }
    return false;
  });
  if (!found && unwritten && !memory_.is_written_in(layout)) found = std::move(unwritten);
  if (!found && access.device && reached < layout.end() && layout.touches(reached, layout.end())) {
    found = report(RaceKind::kNotAllocated, suspect, access, nullptr, false, reached, layout.end());
  }
  return found;
}

std::string RaceChecker::history_of(const Cell& cell) const {
  const auto name = [&](const Touch& touch) {
    return "; '" + touch.task->name + "' (" + names_[touch.actor()] + ", task " +
           std::to_string(touch.number()) + ")";
  };
  if (cell.freed.task) {
    return name(cell.freed) +
           " gave back what was there before: a tensor from then has outlived it";
  }
  if (cell.write.task && cell.write.access->source >= 0) {
    return name(cell.write) + " has copied it from memory that nothing had written";
  }
  return "";
}

std::optional<RaceReport> RaceChecker::check_sparse_uses(const Suspect& suspect,
                                                         const Access& access) const {
  const ByteLayout& layout = access.layout;
  std::optional<RaceReport> found;
  const auto unordered = [&](const Touch& touch, bool writes) {
    ++comparisons_;
    const ByteLayout& other = touch.layout();
    if (!other.overlaps(layout)) return false;
    const Address from = std::max(other.begin(), layout.begin());
    const Address to = std::min(other.end(), layout.end());
    return memory_.any_cell(from, to, [&](Address first, const Cell& cell) {
      // Where a later write without gaps covers it, that one counts.
      if (cell.write.place() >= touch.place()) return false;
      const Address begin = std::max(first, from);
      const Address end = std::min(cell.end, to);
      if (!other.overlaps(layout, begin, end)) return false;
      found = report(RaceKind::kUnordered, suspect, access, &touch, writes, begin, end);
      return true;
    });
  };
  memory_.any_sparse_use(layout.begin(), layout.end(), access.writes, suspect.seen, unordered);
  return found;
}

void RaceChecker::assume_written() {
  memory_.forget_uses(/*assume_written=*/true);
}

void RaceChecker::reset() {
  for (VectorClock& clock : clocks_) clock = {};
  memory_.forget_uses(/*assume_written=*/false);
}

RaceTask RaceChecker::describe(const TaskRecord& task, bool writes) const {
  return {task.name, names_[task.actor], task.number, writes};
}

std::string RaceChecker::describe_range(Address begin, Address end) const {
  const std::string bytes = std::to_string(end - begin) + " bytes";
  const auto block = memory_.block_of(begin, end);
  if (!block) return bytes + " at " + hexadecimal(begin);
  const auto [first, last] = *block;
  return "bytes [" + std::to_string(begin - first) + ", " + std::to_string(end - first) +
         ") of the " + std::to_string(last - first) + " bytes at " + hexadecimal(first);
}

RaceReport RaceChecker::report(RaceKind kind, const Suspect& suspect, const Access& access,
                               const Touch* first, bool first_writes, Address begin,
                               Address end) const {
  RaceReport report{
      .kind = kind, .first = {}, .second = {}, .begin = begin, .end = end, .text = {}};
  if (first != nullptr) report.first = describe(*first->task, first_writes);
  report.second = {suspect.name, names_[suspect.actor], clocks_[suspect.actor][suspect.actor] + 1,
                   access.writes};
  const auto name = [](const RaceTask& task) {
    return "'" + task.name + "' (" + task.stream + ", task " + std::to_string(task.number) + ")";
  };
  const std::string use = name(report.second) +
                          (suspect.frees                                      ? " gives back "
                           : access.writes && kind != RaceKind::kNeverWritten ? " writes "
                                                                              : " reads ") +
                          describe_range(begin, end);
  switch (kind) {
    case RaceKind::kUnordered: {
      const bool host = suspect.actor == kHost;
      report.text = "race: " + use + ", which " + name(report.first) +
                    (first_writes ? " writes" : " reads") + ", and nothing orders the two: " +
                    (host ? "the host must first wait for " + report.first.stream +
                                ", or for an event recorded on it after '" + report.first.name + "'"
                          : "before '" + report.second.name + "', " + report.second.stream +
                                " must wait for an event recorded on " + report.first.stream +
                                " after '" + report.first.name + "'");
      if (suspect.frees) {
        report.text += ", or the tensor must be recorded there (Tensor::record_stream)";
      }
      break;
    }
    case RaceKind::kUseAfterFree:
      report.text = "use after free: " + use + ", which was given back by " + name(report.first);
      break;
    case RaceKind::kNeverWritten:
      report.text = "read of memory that was never written: " + use +
                    ", which nothing has written since it was allocated";
      break;
    case RaceKind::kNotAllocated:
      report.text = "use of memory that is not allocated: " + use;
      break;
  }
  return report;
}

}  // namespace testing::detail

namespace testing {

RaceError::~RaceError() = default;

std::string_view to_string(RaceKind kind) noexcept {
  switch (kind) {
    case RaceKind::kUnordered:
      return "unordered";
    case RaceKind::kUseAfterFree:
      return "use_after_free";
    case RaceKind::kNeverWritten:
      return "never_written";
    case RaceKind::kNotAllocated:
      return "not_allocated";
  }
  return "unknown";
}

}  // namespace testing
OFFSTAGE_NAMESPACE_END

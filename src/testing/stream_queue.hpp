// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// One stream of one simulated device: a queue and the thread that works it off.

#include "vector_clock.hpp"

#include <offstage/base/config.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

class StreamQueue;

/// A point in the work of a stream: everything that was queued when it was taken. One recording of
/// an event; recording again makes another marker and leaves those who wait for this one alone.
class StreamMarker {
 public:
  /// The marker of an event that was never recorded: reached.
  StreamMarker() = default;

  [[nodiscard]] bool reached() const;
  /// Blocks the calling thread. Throws nothing of what the tasks threw.
  void wait() const;

 private:
  friend class StreamQueue;
  StreamMarker(StreamQueue& queue, std::uint64_t number) : queue_(&queue), number_(number) {}

  StreamQueue* queue_ = nullptr;
  std::uint64_t number_ = 0;
};

/// The first error of the queued work of one device, until a synchronisation asks for it.
class ErrorSlot {
 public:
  void store(std::exception_ptr error) noexcept;
  /// Throws the stored error, if any, and forgets it.
  void rethrow();

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// First in, first out, one task at a time, on a thread of its own that starts with the first task.
///
/// Tasks hold raw pointers to device memory, never device tensors: a tensor that dies on a worker
/// would call the allocator there.
class StreamQueue {
 public:
  using Task = std::function<void()>;

  /// @param actor     The stream as the race checker and the virtual time count it.
  /// @param deferred  True: a task runs only when somebody waits for it, or for a later one.
  StreamQueue(ErrorSlot& errors, ActorId actor, bool deferred)
      : errors_(errors), actor_(actor), deferred_(deferred) {}
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  ~StreamQueue() = default;  // The devices are never destroyed.

  [[nodiscard]] ActorId actor() const noexcept { return actor_; }
  [[nodiscard]] ErrorSlot& errors() const noexcept { return errors_; }

  /// Queues a task. What it throws goes to the error slot.
  /// @throws StateError after `shut_down()` and in a child of fork().
  void enqueue(Task task);

  /// The point that the work queued so far will have reached.
  [[nodiscard]] StreamMarker record();

  /// Makes what is queued from now on wait for the marker.
  void wait_for(const StreamMarker& marker);

  /// Waits until everything queued so far has run. Does not throw what the tasks threw.
  /// @throws StateError in a child of fork().
  void drain() { record().wait(); }

  /// Finishes what is queued, then ends the thread. Later tasks are refused.
  void shut_down() noexcept;

 private:
  friend class StreamMarker;

  [[nodiscard]] bool has_finished(std::uint64_t number) const;
  void wait_until_finished(std::uint64_t number);
  void work();

  ErrorSlot& errors_;
  const ActorId actor_;
  const bool deferred_;
  mutable std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable finished_;
  std::deque<Task> tasks_;
  std::uint64_t enqueued_count_ = 0;
  std::uint64_t finished_count_ = 0;
  std::uint64_t demanded_count_ = 0;  // Of a deferred stream: how far it may run.
  bool stopping_ = false;
  std::thread worker_;
};

/// True in a child of fork(), where no worker exists.
[[nodiscard]] bool is_forked_child() noexcept;

/// Makes `is_forked_child` true in children forked from now on. Once is enough.
void watch_for_fork();

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END

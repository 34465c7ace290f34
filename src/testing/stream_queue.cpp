// SPDX-License-Identifier: Apache-2.0
#include "stream_queue.hpp"

#include <offstage/base/error.hpp>

#include <atomic>
#include <pthread.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

std::atomic<bool> forked_child = false;

void refuse_in_forked_child() {
  if (is_forked_child()) {
    throw StateError(
        "simulated accelerator: a child made by fork() cannot use it; start the child with exec, "
        "or install the simulator only there");
  }
}

}  // namespace

bool is_forked_child() noexcept {
  return forked_child.load(std::memory_order_relaxed);
}

void watch_for_fork() {
  ::pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
}

void ErrorSlot::store(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

void ErrorSlot::rethrow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(std::move(error));
}

bool StreamMarker::reached() const {
  return queue_ == nullptr || queue_->has_finished(number_);
}

void StreamMarker::wait() const {
  if (queue_ != nullptr) queue_->wait_until_finished(number_);
}

void StreamQueue::enqueue(Task task) {
  refuse_in_forked_child();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw StateError("simulated accelerator: used after the program's exit began");
    if (!worker_.joinable()) worker_ = std::thread(&StreamQueue::work, this);
    tasks_.push_back(std::move(task));
    ++enqueued_count_;
  }
  queued_.notify_one();
}

StreamMarker StreamQueue::record() {
  const std::lock_guard lock(mutex_);
  return {*this, enqueued_count_};
}

void StreamQueue::wait_for(const StreamMarker& marker) {
  // The stream's own past is behind it anyway; a reached marker has nothing left to wait for.
  if (marker.queue_ == this || marker.reached()) return;
  enqueue([marker] { marker.wait(); });
}

bool StreamQueue::has_finished(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return finished_count_ >= number;
}

void StreamQueue::wait_until_finished(std::uint64_t number) {
  refuse_in_forked_child();
  std::unique_lock lock(mutex_);
  if (demanded_count_ < number) {
    demanded_count_ = number;
    if (deferred_) queued_.notify_one();
  }
  finished_.wait(lock, [&] { return finished_count_ >= number; });
}

void StreamQueue::shut_down() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_one();
  if (worker_.joinable()) worker_.join();
}

void StreamQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [this] {
      return stopping_ || (!tasks_.empty() && (!deferred_ || finished_count_ < demanded_count_));
    });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (...) {
      errors_.store(std::current_exception());
    }
    task = nullptr;  // What it captured dies before the task counts as finished.
    lock.lock();
    ++finished_count_;
    finished_.notify_all();
  }
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END

// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Load, use, offload: the guard around every use of a component.

#include <offstage/base/config.hpp>
#include <offstage/components/component.hpp>

#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

/// Keeps a component usable on the device while the scope is open.
///
/// Scopes on one component nest and may overlap on several threads: the component is offloaded
/// when the last one leaves. Prefer `run`, which reports every error by throwing it.
///
/// What happens when something fails, for a staged component:
///  - the load: the offload is tried and its error dropped, the cache released, the load's error
///    thrown;
///  - the body: the offload is tried and its error dropped (if no other scope holds the component),
///    the cache released, the body's error leaves;
///  - the offload after a body that succeeded: the cache is released, the offload's error leaves.
///
/// "Released" is one forced release. After a failed load or offload the scope leaves it to a
/// stageable that handles its own failures; after a failed body it always makes it. Dropped errors
/// go to the component's sink as `kErrorDropped`.
///
/// @par Ownership
/// Borrows the component.
/// @par Streams
/// The stream that is current when the scope is opened may use the component. Open a further scope
/// on every other stream that does.
/// @par Threads
/// A scope belongs to the thread that opened it.
class ComponentScope {
 public:
  /// Loads the component, if it is staged and not loaded yet.
  /// @throws What the load throws.
  /// @throws StateError if the component is resident but has not been enabled.
  explicit ComponentScope(Component& component)
      : component_(&component), exceptions_at_entry_(std::uncaught_exceptions()) {
    component.enter();
  }

  ComponentScope(const ComponentScope&) = delete;
  ComponentScope& operator=(const ComponentScope&) = delete;
  ComponentScope(ComponentScope&&) = delete;
  ComponentScope& operator=(ComponentScope&&) = delete;

  /// A scope that is still open is closed: as failed while an exception is leaving through it,
  /// otherwise as succeeded, but with an error reported instead of thrown. A forced unwinding
  /// (cancellation of the thread) cannot be told from success here; `run` can.
  ~ComponentScope() {
    if (component_ == nullptr) return;
    if (std::uncaught_exceptions() > exceptions_at_entry_) {
      fail();
    } else {
      std::exchange(component_, nullptr)->leave_in_destructor();
    }
  }

  /// Ends the scope after success: offloads the component if this was the last scope on it. Does
  /// nothing the second time.
  /// @throws What the offload throws.
  void close() {
    if (component_ != nullptr) std::exchange(component_, nullptr)->leave();
  }

  /// Ends the scope after a failure that is about to leave: never throws. Does nothing once the
  /// scope has ended.
  void fail() noexcept {
    if (component_ != nullptr) std::exchange(component_, nullptr)->leave_after_failure();
  }

 private:
  Component* component_;
  int exceptions_at_entry_;
};

/// Runs `body` with the component loaded, and offloads it: the guard in its safest form.
/// @returns What `body` returns: nothing, a reference, or a value, which must be movable.
/// @throws What the load, the body or the offload throws, the first of them; exceptions of every
///         type and forced unwinding are treated alike.
template <typename Body>
std::invoke_result_t<Body> run(Component& component, Body&& body) {
  using Result = std::invoke_result_t<Body>;
  ComponentScope scope(component);
  const auto guarded = [&]() -> Result {
    try {
      return std::invoke(std::forward<Body>(body));
    } catch (...) {
      scope.fail();
      throw;
    }
  };
  if constexpr (std::is_void_v<Result>) {
    guarded();
    scope.close();
  } else if constexpr (std::is_reference_v<Result>) {
    Result result = guarded();
    scope.close();
    return static_cast<Result>(result);
  } else {
    auto result = guarded();
    scope.close();
    return result;
  }
}

OFFSTAGE_NAMESPACE_END

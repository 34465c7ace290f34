// SPDX-License-Identifier: Apache-2.0
// at::RecordFunction has one more member at its end, and asserts on it, where NDEBUG is not
// defined; the one that LibTorch hands to us was built without.
#ifndef NDEBUG
#define NDEBUG
#endif

#include <offstage/staging/trial_run.hpp>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string>
#include <unordered_set>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

/// What one run has seen. Callbacks of LibTorch cannot carry data, so the run is thread-local.
class Trial {
 public:
  Trial(const std::vector<NamedTensor>& managed, const std::vector<at::Tensor>& inputs)
      : outer_(current_) {
    for (const NamedTensor& named : managed) know(named.tensor);
    for (const at::Tensor& input : inputs) know(input);
    current_ = this;
    if (outer_ != nullptr) return;  // Its callback serves both.
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Trial::begin, &Trial::end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  Trial(Trial&&) = delete;
  Trial& operator=(Trial&&) = delete;
  ~Trial() {
    if (outer_ == nullptr) at::removeCallback(handle_);
    current_ = outer_;
  }

  [[nodiscard]] AuditReport take_report() { return std::move(report_); }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    // Operations inside operations have operands that no other operation was seen to make.
    if (current_->depth_++ == 0) current_->look_at(function);
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    if (--current_->depth_ > 0) return;
    for (const c10::IValue& output : function.outputs()) current_->know(output);
  }

  void look_at(const at::RecordFunction& function) {
    for (const c10::IValue& input : function.inputs()) {
      input.visit([&](const c10::IValue& part) {
        if (part.isTensor()) look_at(part.toTensor(), function.name());
        return false;
      });
    }
  }

  void look_at(const at::Tensor& tensor, const char* operation) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;  // A scalar, not a weight.
    if (!known_.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
    report_.add({AuditKind::kUnmanagedTensor, operation,
                 "computes with a tensor that is not listed: " +
                     std::string(c10::toString(tensor.scalar_type())) + " " +
                     c10::str(tensor.sizes()) + " on " + tensor.device().str() +
                     ". It will stay there when the module moves",
                 tensor.numel() * static_cast<std::int64_t>(tensor.itemsize())});
  }

  void know(const c10::IValue& value) {
    value.visit([this](const c10::IValue& part) {
      if (part.isTensor()) know(part.toTensor());
      return false;
    });
  }

  void know(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) {
      known_.insert(tensor.storage().unsafeGetStorageImpl());
    }
  }

  static thread_local Trial* current_;
  Trial* const outer_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  int depth_ = 0;
  std::unordered_set<const c10::StorageImpl*> known_;
  AuditReport report_;
};

thread_local Trial* Trial::current_ = nullptr;

}  // namespace

AuditReport audit_trial_run(const std::vector<NamedTensor>& managed,
                            const std::vector<at::Tensor>& inputs,
                            const std::function<void()>& body) {
  Trial trial(managed, inputs);
  body();
  return trial.take_report();
}

OFFSTAGE_NAMESPACE_END

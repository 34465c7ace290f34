// SPDX-License-Identifier: Apache-2.0
#include "retention_ledger.hpp"

#include <offstage/base/error.hpp>
#include <offstage/retention/staged_bytes_token.hpp>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

StagedBytesToken::StagedBytesToken(std::shared_ptr<detail::RetentionLedger> ledger,
                                   std::int64_t bytes)
    : ledger_(std::move(ledger)) {
  resize(bytes);
}

StagedBytesToken::StagedBytesToken(StagedBytesToken&& other) noexcept
    : ledger_(std::move(other.ledger_)), bytes_(std::exchange(other.bytes_, 0)) {}

StagedBytesToken& StagedBytesToken::operator=(StagedBytesToken&& other) noexcept {
  StagedBytesToken taken(std::move(other));
  std::swap(ledger_, taken.ledger_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

StagedBytesToken::~StagedBytesToken() {
  detach();
}

void StagedBytesToken::resize(std::int64_t bytes) {
  if (ledger_ == nullptr) throw StateError("staged bytes: the token is attached to nothing");
  ledger_->change(bytes_, bytes);
  bytes_ = bytes;
}

void StagedBytesToken::detach() noexcept {
  if (ledger_ == nullptr) return;
  ledger_->remove(std::exchange(bytes_, 0));
  ledger_ = nullptr;
}

OFFSTAGE_NAMESPACE_END

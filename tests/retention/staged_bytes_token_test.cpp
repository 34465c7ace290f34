// SPDX-License-Identifier: Apache-2.0
#include "cache_fixture.hpp"

#include <offstage/base/error.hpp>
#include <offstage/retention/staged_bytes_token.hpp>

#include <limits>
#include <string>
#include <type_traits>

namespace offstage {
namespace {

static_assert(!std::is_copy_constructible_v<StagedBytesToken>);
static_assert(std::is_nothrow_move_constructible_v<StagedBytesToken>);
static_assert(std::is_nothrow_move_assignable_v<StagedBytesToken>);
static_assert(std::is_nothrow_destructible_v<StagedBytesToken>);

class StagedBytesTokenTest : public CacheTest {
 protected:
  std::unique_ptr<BoundedAllocatorCache> cache = cache_of(std::make_shared<FixedRetention>());

  std::int64_t staged() const { return cache->state().staged_bytes; }
  std::int64_t peak() const { return cache->state().observed_peak; }
  std::string error_of_attaching(std::int64_t bytes) const {
    try {
      (void)cache->attach(bytes);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(StagedBytesTokenTest, CountsItsBytesForAsLongAsItLives) {
  {
    const StagedBytesToken first = cache->attach(100);
    EXPECT_TRUE(first.is_attached());
    EXPECT_EQ(first.bytes(), 100);
    const StagedBytesToken second = cache->attach(12);
    EXPECT_EQ(staged(), 112);
  }
  EXPECT_EQ(staged(), 0);
}

TEST_F(StagedBytesTokenTest, ATokenOfNoCacheCountsNothing) {
  StagedBytesToken token;
  EXPECT_FALSE(token.is_attached());
  EXPECT_EQ(token.bytes(), 0);
  token.detach();
  EXPECT_THROW(token.resize(1), StateError);
}

TEST_F(StagedBytesTokenTest, AMoveTakesTheEntryAlong) {
  StagedBytesToken token = cache->attach(100);
  const StagedBytesToken moved = std::move(token);
  EXPECT_FALSE(token.is_attached());  // NOLINT: what is left of it is what is asked.
  EXPECT_EQ(token.bytes(), 0);
  EXPECT_EQ(moved.bytes(), 100);
  EXPECT_EQ(staged(), 100);
}

TEST_F(StagedBytesTokenTest, AssigningDetachesWhatWasCounted) {
  StagedBytesToken token = cache->attach(100);
  token = cache->attach(30);
  EXPECT_EQ(staged(), 30);
  EXPECT_EQ(token.bytes(), 30);
}

TEST_F(StagedBytesTokenTest, DetachingTwiceSubtractsOnce) {
  StagedBytesToken token = cache->attach(100);
  const StagedBytesToken other = cache->attach(30);
  token.detach();
  token.detach();
  EXPECT_EQ(staged(), 30);
}

TEST_F(StagedBytesTokenTest, ResizingChangesTheSumByTheDifference) {
  StagedBytesToken token = cache->attach(100);
  const StagedBytesToken other = cache->attach(30);
  token.resize(150);
  EXPECT_EQ(staged(), 180);
  token.resize(10);
  EXPECT_EQ(staged(), 40);
  EXPECT_EQ(token.bytes(), 10);
}

TEST_F(StagedBytesTokenTest, ThePeakIsResetWhenTheSumComesDownToZeroAndNotBefore) {
  StagedBytesToken token = cache->attach(100);
  StagedBytesToken other = cache->attach(30);
  (void)releases(*cache, 20);
  other.detach();
  EXPECT_EQ(peak(), 20);
  token.resize(1);
  EXPECT_EQ(peak(), 20);
  token.resize(0);
  EXPECT_EQ(peak(), 0);
}

TEST_F(StagedBytesTokenTest, WithNothingAttachedTheCacheLearnsAllTheSame) {
  (void)releases(*cache, 20);
  { const StagedBytesToken empty = cache->attach(0); }
  EXPECT_EQ(peak(), 20) << "no byte has left";
}

TEST_F(StagedBytesTokenTest, NegativeBytesAreRefusedAndNothingIsChanged) {
  EXPECT_EQ(error_of_attaching(-1),
            "bounded allocator cache: staged bytes must not be negative, got -1");
  StagedBytesToken token = cache->attach(100);
  EXPECT_THROW(token.resize(-5), InvalidArgument);
  EXPECT_EQ(token.bytes(), 100);
  EXPECT_EQ(staged(), 100);
}

TEST_F(StagedBytesTokenTest, ASumBeyondAnInt64IsRefusedAndNothingIsChanged) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  StagedBytesToken token = cache->attach(kMax);
  EXPECT_EQ(error_of_attaching(1),
            "bounded allocator cache: the sum of all staged bytes exceeds an int64: "
            "9223372036854775807 and 1");
  EXPECT_EQ(staged(), kMax);
  token.resize(kMax - 1);
  EXPECT_EQ(error_of_attaching(1), "accepted");
}

TEST_F(StagedBytesTokenTest, ATokenMayOutliveItsCache) {
  StagedBytesToken token = cache->attach(100);
  cache.reset();
  token.resize(50);
  EXPECT_EQ(token.bytes(), 50);
}

TEST_F(StagedBytesTokenTest, TokensOfTwoCachesDoNotMix) {
  const auto other = cache_of(std::make_shared<FixedRetention>());
  StagedBytesToken token = cache->attach(100);
  const StagedBytesToken second = other->attach(30);
  token = other->attach(5);
  EXPECT_EQ(staged(), 0);
  EXPECT_EQ(other->state().staged_bytes, 35);
}

}  // namespace
}  // namespace offstage

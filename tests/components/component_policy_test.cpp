// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/components/component_policy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace offstage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<ComponentDescriptor> kPipeline = {
    {.path = "text_encoder", .role = ComponentRole::kEncoder, .has_blocks = true},
    {.path = "video_vae", .role = ComponentRole::kVae},
    {.path = "audio_vae", .role = ComponentRole::kVae},
};

std::vector<std::string> residences(const ComponentPolicy& policy,
                                    const std::vector<ComponentDescriptor>& components) {
  std::vector<std::string> found;
  for (const ResolvedComponent& component : policy.resolve(components, true)) {
    found.emplace_back(to_string(component.placement.residence));
  }
  return found;
}

Placement placement_of(const ComponentDescriptor& component, const std::string& policy) {
  return ComponentPolicy::parse(policy).resolve(std::vector{component}, true)[0].placement;
}

std::string resolve_error(const std::string& policy,
                          const std::vector<ComponentDescriptor>& components = kPipeline,
                          bool offloading_enabled = true) {
  try {
    (void)ComponentPolicy::parse(policy).resolve(components, offloading_enabled);
  } catch (const PolicyError& error) {
    return error.what();
  }
  return "accepted";
}

// --- The required table ---------------------------------------------------------------------

TEST(ComponentPolicyTest, TheEmptyPolicyStagesWhatIsDeclared) {
  const ComponentPolicy policy = ComponentPolicy::parse("{}");
  EXPECT_EQ(residences(policy, kPipeline),
            (std::vector<std::string>{"staged", "staged", "staged"}));
  EXPECT_EQ(policy.resolve(kPipeline, true)[0].placement.blocks, BlockTreatment::kStreamable);
}

TEST(ComponentPolicyTest, FalseKeepsTheWholeComponentResidentItsBlocksIncluded) {
  const ComponentPolicy policy = ComponentPolicy::parse(R"({"text_encoder": false})");
  EXPECT_EQ(residences(policy, kPipeline),
            (std::vector<std::string>{"resident", "staged", "staged"}));
  EXPECT_EQ(policy.resolve(kPipeline, true)[0].placement.blocks, BlockTreatment::kUntouched);
}

TEST(ComponentPolicyTest, TheDefaultReachesWhatHasNoEntry) {
  const ComponentPolicy policy = ComponentPolicy::parse(R"({"default": false, "video_vae": true})");
  EXPECT_EQ(residences(policy, kPipeline),
            (std::vector<std::string>{"resident", "staged", "resident"}));
}

// --- Lookup ---------------------------------------------------------------------------------

TEST(ComponentPolicyTest, LookupTakesTheEntryThenTheDefaultThenTrue) {
  const ComponentPolicy policy = ComponentPolicy::parse(R"({"a": true, "default": false})");
  EXPECT_TRUE(policy.lookup("a"));
  EXPECT_FALSE(policy.lookup("b"));
  EXPECT_TRUE(ComponentPolicy::parse(R"({"a": false})").lookup("b"));
  EXPECT_FALSE(ComponentPolicy::parse(R"({"a": false})").lookup("a"));
}

TEST(ComponentPolicyTest, AMapMeansWhatTheSameDocumentMeans) {
  const ComponentPolicy policy =
      ComponentPolicy::from_map({{"default", false}, {"video_vae", true}});
  EXPECT_EQ(policy.default_value(), false);
  EXPECT_EQ(policy.entries(), (std::map<std::string, bool, std::less<>>{{"video_vae", true}}));
  EXPECT_EQ(residences(policy, kPipeline),
            (std::vector<std::string>{"resident", "staged", "resident"}));
}

TEST(ComponentPolicyTest, AMapWithAnEmptyKeyIsRefused) {
  EXPECT_THROW((void)ComponentPolicy::from_map({{"", true}}), PolicyError);
}

TEST(ComponentPolicyTest, AbsentNullAndEmptyAreTheSamePolicy) {
  EXPECT_TRUE(ComponentPolicy().empty());
  EXPECT_TRUE(ComponentPolicy::parse("null").empty());
  EXPECT_TRUE(ComponentPolicy::parse(" {} ").empty());
  EXPECT_TRUE(ComponentPolicy::from_map({}).empty());
  EXPECT_FALSE(ComponentPolicy::parse(R"({"default": true})").empty());
}

// --- Resolution -----------------------------------------------------------------------------

TEST(ComponentPolicyTest, PlacementsKeepPathsAndOrder) {
  const auto resolved = ComponentPolicy().resolve(kPipeline, true);
  ASSERT_EQ(resolved.size(), 3U);
  EXPECT_EQ(resolved[0].path, "text_encoder");
  EXPECT_EQ(resolved[1].path, "video_vae");
  EXPECT_EQ(resolved[2].path, "audio_vae");
  EXPECT_EQ(resolved[1].placement.blocks, BlockTreatment::kNone);
}

TEST(ComponentPolicyTest, PlacementsSayWhy) {
  const ComponentDescriptor vae{.path = "vae", .role = ComponentRole::kVae};
  EXPECT_EQ(placement_of(vae, "{}").reason, PlacementReason::kNoEntry);
  EXPECT_EQ(placement_of(vae, R"({"vae": true})").reason, PlacementReason::kNamed);
  EXPECT_EQ(placement_of(vae, R"({"vae": false})").reason, PlacementReason::kNamed);
  EXPECT_EQ(placement_of(vae, R"({"default": false})").reason, PlacementReason::kDefaultEntry);
  EXPECT_EQ(to_string(PlacementReason::kDefaultEntry), "default_entry");
}

TEST(ComponentPolicyTest, TrueOnlyPermitsWhatIsDeclared) {
  const ComponentDescriptor blocks_only{
      .path = "e", .role = ComponentRole::kEncoder, .on_demand = false, .has_blocks = true};
  EXPECT_EQ(placement_of(blocks_only, R"({"e": true})"),
            (Placement{.residence = Residence::kResident,
                       .blocks = BlockTreatment::kStreamable,
                       .reason = PlacementReason::kNotOnDemand}));
  const ComponentDescriptor plain{.path = "e", .on_demand = false};
  EXPECT_EQ(placement_of(plain, R"({"e": true})"),
            (Placement{.residence = Residence::kResident,
                       .blocks = BlockTreatment::kNone,
                       .reason = PlacementReason::kNotOnDemand}));
}

TEST(ComponentPolicyTest, TransformersAreAsDeclaredWhateverTheDefaultSays) {
  const ComponentDescriptor transformer{
      .path = "dit", .role = ComponentRole::kTransformer, .has_blocks = true};
  EXPECT_EQ(placement_of(transformer, R"({"default": false})"),
            (Placement{.residence = Residence::kStaged,
                       .blocks = BlockTreatment::kStreamable,
                       .reason = PlacementReason::kNotGoverned}));
}

TEST(ComponentPolicyTest, WithOffloadingOffEverythingIsResidentAndNoBlockIsTouched) {
  const auto resolved = ComponentPolicy().resolve(kPipeline, /*offloading_enabled=*/false);
  for (const ResolvedComponent& component : resolved) {
    EXPECT_EQ(component.placement.residence, Residence::kResident);
    EXPECT_EQ(component.placement.reason, PlacementReason::kOffloadingOff);
  }
  EXPECT_EQ(resolved[0].placement.blocks, BlockTreatment::kUntouched);
  EXPECT_EQ(resolved[1].placement.blocks, BlockTreatment::kNone);
}

TEST(ComponentPolicyTest, APolicyThatSaysSomethingNeedsOffloading) {
  EXPECT_EQ(resolve_error(R"({"video_vae": true, "default": true})", kPipeline, false),
            "component policy: at the document: expected an empty policy, since offloading is "
            "off, found 2 entries");
  EXPECT_EQ(resolve_error("null", kPipeline, false), "accepted");
}

// --- Unknown names --------------------------------------------------------------------------

// case C39
TEST(ComponentPolicyTest, AMisspeltNameIsAnErrorWithPlaceNearestNameAndKnownNames) {
  EXPECT_EQ(resolve_error(R"({"text_encodr": false})"),
            "component policy: at '/text_encodr': expected only known names ('audio_vae', "
            "'text_encoder', 'video_vae'), found unknown 'text_encodr' (did you mean "
            "'text_encoder'?)");
}

TEST(ComponentPolicyTest, EveryUnknownNameIsListed) {
  const std::string error = resolve_error(R"({"zebra": true, "video_vae": true, "giraffe": true})");
  EXPECT_THAT(error, HasSubstr("unknown 'giraffe', 'zebra'"));
  EXPECT_THAT(error, Not(HasSubstr("did you mean")));
}

TEST(ComponentPolicyTest, ATransformerIsUnknownAndTheErrorSaysWhy) {
  std::vector<ComponentDescriptor> components = kPipeline;
  components.push_back({.path = "transformer", .role = ComponentRole::kTransformer});
  const std::string error = resolve_error(R"({"transformer": false})", components);
  EXPECT_THAT(error, HasSubstr("known names ('audio_vae', 'text_encoder', 'video_vae')"));
  EXPECT_THAT(error, HasSubstr("unknown 'transformer' (a transformer"));
}

TEST(ComponentPolicyTest, ANameInAPipelineWithoutComponentsIsUnknown) {
  EXPECT_THAT(resolve_error(R"({"vae": true})", {}), HasSubstr("expected no names"));
}

TEST(ComponentPolicyTest, UnknownNamesArePointedToByRfc6901) {
  EXPECT_THAT(resolve_error(R"({"a/b~c": true})"), HasSubstr("at '/a~1b~0c'"));
}

// --- Descriptors ----------------------------------------------------------------------------

TEST(ComponentPolicyTest, DescriptorsMustHaveDistinctUsablePaths) {
  const ComponentPolicy policy;
  const std::vector<ComponentDescriptor> twice = {{.path = "vae"},
                                                  {.path = "vae", .role = ComponentRole::kVae}};
  const std::vector<ComponentDescriptor> empty = {{.path = ""}};
  const std::vector<ComponentDescriptor> reserved = {{.path = "default"}};
  EXPECT_THROW((void)policy.resolve(twice, true), InvalidArgument);
  EXPECT_THROW((void)policy.resolve(empty, true), InvalidArgument);
  EXPECT_THROW((void)policy.resolve(reserved, true), InvalidArgument);
}

}  // namespace
}  // namespace offstage

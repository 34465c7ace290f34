// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The macros that every header of the library uses.

/// Opens namespace `offstage`, and in it an inline namespace that carries the layout version, so
/// that two binaries built against incompatible versions fail to link instead of misbehaving.
#define OFFSTAGE_NAMESPACE_BEGIN \
  namespace offstage {           \
  inline namespace v0 {

/// Closes what `OFFSTAGE_NAMESPACE_BEGIN` opened.
#define OFFSTAGE_NAMESPACE_END \
  }                            \
  }

/// Marks what must be visible across shared libraries: exception types, and functions whose
/// address identifies memory of ours.
#define OFFSTAGE_API __attribute__((visibility("default")))

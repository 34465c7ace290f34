// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The version of offstage: the one place it is written down; CMake reads it from here.

#define OFFSTAGE_VERSION_MAJOR 0
#define OFFSTAGE_VERSION_MINOR 1
#define OFFSTAGE_VERSION_PATCH 0

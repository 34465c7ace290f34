# Finds the LibTorch libraries and headers without the CUDA toolkit and without importing Python.
#
#   find_package(LibTorch [version or range] [REQUIRED])
#
# Where it looks; the first one whose version fits wins:
#   1. OFFSTAGE_LIBTORCH (variable or environment). Where it is set, nothing else is looked at.
#   2. Torch_DIR, CMAKE_PREFIX_PATH (variables or environment);
#   3. what `./cmake/dev setup` made: OFFSTAGE_CACHE_DIR (environment, default ~/.cache/offstage);
#   4. the `torch` package that python3 would import (looked up, not imported).
# Each may be a prefix that holds include/ and lib/, or a Python environment whose site-packages
# hold torch/.
#
# Defines
#   LibTorch::c10, LibTorch::torch_cpu                    always
#   LibTorch::c10_cuda, LibTorch::torch_cuda              where these libraries exist
#   LibTorch_VERSION, LibTorch_PREFIX, LibTorch_INCLUDE_DIRS
#
# The usual find_package(Torch) is not used: on a CUDA build it demands nvcc and a matching toolkit,
# and then links torch_cuda even where only the CPU part is needed. Both can live in one build.

include(FindPackageHandleStandardArgs)

# The version of the LibTorch at `prefix`, or an empty string. c10/core/CachingDeviceAllocator.h
# exists from 2.9 on: it tells a usable LibTorch from an old one that a distribution put into /usr.
function(_libtorch_version prefix result)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS "${prefix}/include/c10/core/CachingDeviceAllocator.h")
    return()
  endif()
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${prefix}/include/${header}")
      file(STRINGS "${prefix}/include/${header}" lines
        REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      if("${lines}" MATCHES
          "_MAJOR ([0-9]+).*TORCH_VERSION_MINOR ([0-9]+).*TORCH_VERSION_PATCH ([0-9]+)")
        set(${result} "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# True if `version` is what the caller of find_package asked for.
function(_libtorch_version_fits version result)
  set(fits TRUE)
  if(LibTorch_FIND_VERSION_MIN AND version VERSION_LESS LibTorch_FIND_VERSION_MIN)
    set(fits FALSE)
  elseif(LibTorch_FIND_VERSION AND version VERSION_LESS LibTorch_FIND_VERSION)
    set(fits FALSE)
  elseif(LibTorch_FIND_VERSION_MAX AND LibTorch_FIND_VERSION_RANGE_MAX STREQUAL "EXCLUDE"
      AND NOT version VERSION_LESS LibTorch_FIND_VERSION_MAX)
    set(fits FALSE)
  elseif(LibTorch_FIND_VERSION_MAX AND version VERSION_GREATER LibTorch_FIND_VERSION_MAX)
    set(fits FALSE)
  endif()
  set(${result} ${fits} PARENT_SCOPE)
endfunction()

# Sets LibTorch_PREFIX and LibTorch_VERSION from the first of `roots` that fits; notes the others in
# _libtorch_refused, for the message.
macro(_libtorch_search)
  foreach(_root IN ITEMS ${ARGN})
    file(GLOB _candidates LIST_DIRECTORIES TRUE
      "${_root}" "${_root}/torch" "${_root}/lib/python3*/site-packages/torch")
    foreach(_candidate IN LISTS _candidates)
      _libtorch_version("${_candidate}" _version)
      if(_version AND NOT LibTorch_PREFIX)
        _libtorch_version_fits("${_version}" _fits)
        if(_fits)
          set(LibTorch_PREFIX "${_candidate}")
          set(LibTorch_VERSION "${_version}")
        else()
          list(APPEND _libtorch_refused "${_version} in ${_candidate}")
        endif()
      endif()
    endforeach()
  endforeach()
endmacro()

set(LibTorch_PREFIX "")
set(LibTorch_VERSION "")
set(_libtorch_refused "")
set(_libtorch_named "${OFFSTAGE_LIBTORCH}")
if(NOT _libtorch_named)
  set(_libtorch_named "$ENV{OFFSTAGE_LIBTORCH}")
endif()

if(TARGET LibTorch::c10)  # Found before in this directory or above: the answer must not change.
  get_target_property(_root LibTorch::c10 INTERFACE_LIBTORCH_PREFIX)
  _libtorch_search("${_root}")
elseif(_libtorch_named)
  _libtorch_search("${_libtorch_named}")
else()
  set(_libtorch_roots "")
  if(Torch_DIR)  # <prefix>/share/cmake/Torch
    get_filename_component(_root "${Torch_DIR}/../../.." ABSOLUTE)
    list(APPEND _libtorch_roots "${_root}")
  endif()
  string(REPLACE ":" ";" _env_prefix_path "$ENV{CMAKE_PREFIX_PATH}")
  foreach(_hint IN LISTS CMAKE_PREFIX_PATH _env_prefix_path)
    get_filename_component(_root "${_hint}/../.." ABSOLUTE)  # torch.utils.cmake_prefix_path
    list(APPEND _libtorch_roots "${_hint}" "${_root}")
  endforeach()
  set(_libtorch_cache "$ENV{OFFSTAGE_CACHE_DIR}")
  if(NOT _libtorch_cache AND DEFINED ENV{HOME})
    set(_libtorch_cache "$ENV{HOME}/.cache/offstage")
  endif()
  if(_libtorch_cache)
    # Not those that are still being unpacked: their names end in .part.
    file(GLOB _roots LIST_DIRECTORIES TRUE "${_libtorch_cache}/libtorch-*[0-9]")
    list(SORT _roots COMPARE NATURAL)
    list(APPEND _libtorch_roots ${_roots})
  endif()
  _libtorch_search(${_libtorch_roots})

  if(NOT LibTorch_PREFIX)
    find_program(_libtorch_python NAMES python3 python)
    mark_as_advanced(_libtorch_python)
    if(_libtorch_python)
      execute_process(
        COMMAND "${_libtorch_python}" -c
          "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)[0] if s else '')"
        OUTPUT_VARIABLE _root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(_root)
        _libtorch_search("${_root}")
      endif()
    endif()
  endif()
endif()

if(LibTorch_PREFIX)
  set(LibTorch_INCLUDE_DIRS
    "${LibTorch_PREFIX}/include" "${LibTorch_PREFIX}/include/torch/csrc/api/include")
  foreach(_name IN ITEMS c10 torch_cpu c10_cuda torch_cuda)
    unset(LibTorch_${_name}_LIBRARY)
    find_library(LibTorch_${_name}_LIBRARY NAMES ${_name} lib${_name}.so
      PATHS "${LibTorch_PREFIX}/lib" NO_DEFAULT_PATH NO_CACHE)
  endforeach()
  set(_libtorch_cxx11_abi 1)
  set(_config "${LibTorch_PREFIX}/share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${_config}")
    file(STRINGS "${_config}" _lines REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
    if("${_lines}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
      set(_libtorch_cxx11_abi 0)
    endif()
  endif()
endif()

set(_libtorch_reason "no LibTorch was found")
if(_libtorch_named)
  string(APPEND _libtorch_reason " in OFFSTAGE_LIBTORCH=${_libtorch_named}")
endif()
if(_libtorch_refused)
  list(REMOVE_DUPLICATES _libtorch_refused)
  list(JOIN _libtorch_refused ", " _libtorch_refused)
  string(APPEND _libtorch_reason " whose version fits (found ${_libtorch_refused})")
endif()
string(APPEND _libtorch_reason ". Run `./cmake/dev setup` of offstage, or set OFFSTAGE_LIBTORCH to "
  "a LibTorch prefix (the folder that holds include/ and lib/)")

find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_PREFIX LibTorch_c10_LIBRARY LibTorch_torch_cpu_LIBRARY
  VERSION_VAR LibTorch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "${_libtorch_reason}")

# No targets where a script only asks where LibTorch is.
if(LibTorch_FOUND AND NOT TARGET LibTorch::c10 AND NOT CMAKE_SCRIPT_MODE_FILE)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION "${LibTorch_c10_LIBRARY}"
    INTERFACE_LIBTORCH_PREFIX "${LibTorch_PREFIX}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}")
  if(_libtorch_cxx11_abi EQUAL 0)
    set_property(TARGET LibTorch::c10 APPEND PROPERTY
      INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=0)
  endif()
  add_library(LibTorch::torch_cpu SHARED IMPORTED)
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_torch_cpu_LIBRARY}"
    # Part of torch_cpu's own interface: without them the c10d classes change shape or vanish.
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  foreach(_name IN ITEMS c10_cuda torch_cuda)
    if(LibTorch_${_name}_LIBRARY)
      add_library(LibTorch::${_name} SHARED IMPORTED)
      set_target_properties(LibTorch::${_name} PROPERTIES
        IMPORTED_LOCATION "${LibTorch_${_name}_LIBRARY}"
        INTERFACE_LINK_LIBRARIES LibTorch::torch_cpu)
    endif()
  endforeach()
endif()

# Finds the LibTorch libraries and headers without the CUDA toolkit and without importing Python.
#
#   find_package(LibTorch [version] [REQUIRED])
#
# Where it looks, first hit wins:
#   1. OFFSTAGE_LIBTORCH (variable or environment), Torch_DIR, CMAKE_PREFIX_PATH: a prefix that holds
#      include/ and lib/, or a Python environment whose site-packages hold torch/;
#   2. the environment that `cmake/dev setup` makes: OFFSTAGE_CACHE_DIR (default ~/.cache/offstage);
#   3. the `torch` package that python3 would import (looked up, not imported).
#
# Defines
#   LibTorch::c10, LibTorch::torch_cpu                    always
#   LibTorch::c10_cuda, LibTorch::torch_cuda              where these libraries exist
#   LibTorch_VERSION, LibTorch_PREFIX, LibTorch_INCLUDE_DIRS
#
# The usual find_package(Torch) is not used: on a CUDA build it demands nvcc and a matching toolkit,
# and then links torch_cuda even where only the CPU part is needed.

include(FindPackageHandleStandardArgs)

# c10/core/CachingDeviceAllocator.h exists from LibTorch 2.9 on: it tells a usable LibTorch from an
# older one that a distribution may have put into /usr.
set(_libtorch_probe "c10/core/CachingDeviceAllocator.h")

set(_libtorch_roots "")
foreach(_hint IN ITEMS "${OFFSTAGE_LIBTORCH}" "$ENV{OFFSTAGE_LIBTORCH}")
  if(_hint)
    list(APPEND _libtorch_roots "${_hint}")
  endif()
endforeach()
if(Torch_DIR)  # <prefix>/share/cmake/Torch
  get_filename_component(_hint "${Torch_DIR}/../../.." ABSOLUTE)
  list(APPEND _libtorch_roots "${_hint}")
endif()
foreach(_hint IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _libtorch_roots "${_hint}")
  get_filename_component(_hint "${_hint}/../.." ABSOLUTE)  # torch.utils.cmake_prefix_path
  list(APPEND _libtorch_roots "${_hint}")
endforeach()
set(_libtorch_cache "$ENV{OFFSTAGE_CACHE_DIR}")
if(NOT _libtorch_cache AND DEFINED ENV{HOME})
  set(_libtorch_cache "$ENV{HOME}/.cache/offstage")
endif()
if(_libtorch_cache)
  file(GLOB _hint LIST_DIRECTORIES TRUE "${_libtorch_cache}/libtorch-*")
  list(SORT _hint COMPARE NATURAL)
  # The first supported release is preferred; others are used only when they are the only ones.
  list(APPEND _libtorch_roots "${_libtorch_cache}/libtorch-2.11.0" ${_hint})
endif()

set(LibTorch_PREFIX "LibTorch_PREFIX-NOTFOUND")
foreach(_root IN LISTS _libtorch_roots)
  file(GLOB _candidates LIST_DIRECTORIES TRUE
    "${_root}" "${_root}/torch" "${_root}/lib/python3*/site-packages/torch")
  foreach(_candidate IN LISTS _candidates)
    if(EXISTS "${_candidate}/include/${_libtorch_probe}")
      set(LibTorch_PREFIX "${_candidate}")
      break()
    endif()
  endforeach()
  if(LibTorch_PREFIX)
    break()
  endif()
endforeach()

if(NOT LibTorch_PREFIX)
  find_program(_libtorch_python NAMES python3 python)
  if(_libtorch_python)
    execute_process(
      COMMAND "${_libtorch_python}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)[0] if s else '')"
      OUTPUT_VARIABLE _candidate OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_candidate AND EXISTS "${_candidate}/include/${_libtorch_probe}")
      set(LibTorch_PREFIX "${_candidate}")
    endif()
  endif()
endif()

set(LibTorch_VERSION "")
if(LibTorch_PREFIX)
  set(LibTorch_INCLUDE_DIRS
    "${LibTorch_PREFIX}/include" "${LibTorch_PREFIX}/include/torch/csrc/api/include")
  foreach(_header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${LibTorch_PREFIX}/include/${_header}")
      file(STRINGS "${LibTorch_PREFIX}/include/${_header}" _lines
        REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      foreach(_part IN ITEMS MAJOR MINOR PATCH)
        if("${_lines}" MATCHES "TORCH_VERSION_${_part} ([0-9]+)")
          set(_libtorch_${_part} "${CMAKE_MATCH_1}")
        endif()
      endforeach()
      set(LibTorch_VERSION "${_libtorch_MAJOR}.${_libtorch_MINOR}.${_libtorch_PATCH}")
      break()
    endif()
  endforeach()
  foreach(_name IN ITEMS c10 torch_cpu c10_cuda torch_cuda)
    find_library(LibTorch_${_name}_LIBRARY NAMES ${_name}
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

find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_PREFIX LibTorch_c10_LIBRARY LibTorch_torch_cpu_LIBRARY
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "no LibTorch 2.9 or newer was found. Run `./cmake/dev setup`, or set OFFSTAGE_LIBTORCH to a LibTorch prefix (the folder that holds include/ and lib/)")

if(LibTorch_FOUND AND NOT TARGET LibTorch::c10)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION "${LibTorch_c10_LIBRARY}"
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

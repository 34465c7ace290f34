# OFFSTAGE_BUILD_CUDA: whether offstage::cuda is built. It needs a CUDA build of LibTorch and the headers
# of the CUDA runtime, from a toolkit or from the wheels beside LibTorch; no nvcc and no GPU.
get_filename_component(_site_packages "${LibTorch_PREFIX}" DIRECTORY)
file(GLOB _wheels "${_site_packages}/nvidia/cu*/include" "${_site_packages}/nvidia/cuda_runtime/include")
# crt/host_defines.h is what every header of the runtime starts with; the wheel of the runtime does not
# bring it.
find_path(OFFSTAGE_CUDA_INCLUDE_DIR crt/host_defines.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS ${_wheels} /usr/local/cuda/include PATH_SUFFIXES include)
mark_as_advanced(OFFSTAGE_CUDA_INCLUDE_DIR)

set(_cuda_reason "")
if(NOT TARGET LibTorch::c10_cuda)
  set(_cuda_reason "the LibTorch in ${LibTorch_PREFIX} has no CUDA part")
elseif(NOT EXISTS "${OFFSTAGE_CUDA_INCLUDE_DIR}/cuda_runtime_api.h")
  set(_cuda_reason "no headers of the CUDA runtime were found; set OFFSTAGE_CUDA_INCLUDE_DIR to them")
endif()

set(_cuda_default OFF)
if(PROJECT_IS_TOP_LEVEL AND NOT _cuda_reason)
  set(_cuda_default ON)
endif()
option(OFFSTAGE_BUILD_CUDA "Build offstage::cuda" ${_cuda_default})
if(OFFSTAGE_BUILD_CUDA AND _cuda_reason)
  message(FATAL_ERROR "offstage: OFFSTAGE_BUILD_CUDA is ON, but ${_cuda_reason}")
elseif(PROJECT_IS_TOP_LEVEL AND NOT OFFSTAGE_BUILD_CUDA)
  message(STATUS "offstage::cuda is not built. ${_cuda_reason}")
endif()

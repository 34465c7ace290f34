# cmake -P locate_libtorch.cmake: prints the prefix of the LibTorch that the build would use, or
# fails and says why. Only minor releases that offstage is tested with count here.
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
find_package(LibTorch 2.11...<2.12 QUIET)
if(NOT LibTorch_FOUND)
  message(FATAL_ERROR "${_libtorch_reason}")
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${LibTorch_PREFIX}")

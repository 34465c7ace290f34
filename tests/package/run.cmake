# cmake -DCASE=installed|subdirectory|refused ... -P run.cmake
#
# Configures, builds and runs the consumer project CASE in WORK, and looks at the flags it was
# compiled with. `refused` configures it with a LibTorch of another minor release and wants a no.
foreach(name IN ITEMS CASE SOURCE BUILD WORK LIBTORCH GENERATOR COMPILER)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "-D${name}= is missing")
  endif()
endforeach()

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
endfunction()

set(prefix "${WORK}/prefix")
set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" -B "${WORK}/build"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
  -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g1" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
file(REMOVE_RECURSE "${WORK}")

if(NOT CASE STREQUAL "subdirectory")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}" --component offstage)
endif()

if(CASE STREQUAL "refused")
  # As much of another LibTorch as the search looks at.
  set(other "${WORK}/libtorch")
  file(WRITE "${other}/include/c10/core/CachingDeviceAllocator.h" "")
  file(WRITE "${other}/include/torch/headeronly/version.h"
    "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 15\n#define TORCH_VERSION_PATCH 0\n")
  file(WRITE "${other}/lib/libc10.so" "")
  file(WRITE "${other}/lib/libtorch_cpu.so" "")
  execute_process(COMMAND ${configure} -S "${SOURCE}/tests/package/installed"
      "-DCMAKE_PREFIX_PATH=${prefix}" "-DOFFSTAGE_LIBTORCH=${other}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(NOT result)
    message(FATAL_ERROR "LibTorch 2.15 was accepted by a package built with another minor release")
  elseif(NOT output MATCHES "works with 2\\.[0-9]+ only.*found 2\\.15\\.0 in")
    message(FATAL_ERROR "the message does not say what is needed and what was found")
  endif()
  return()
endif()

run(${configure} -S "${SOURCE}/tests/package/${CASE}" "-DCMAKE_PREFIX_PATH=${prefix}"
  "-DOFFSTAGE_SOURCE=${SOURCE}" "-DOFFSTAGE_LIBTORCH=${LIBTORCH}")

# Flags of ours must not reach the consumer's own file.
file(READ "${WORK}/build/compile_commands.json" commands)
string(JSON last LENGTH "${commands}")
math(EXPR last "${last} - 1")
foreach(i RANGE ${last})
  string(JSON file GET "${commands}" ${i} file)
  if(file MATCHES "/consumer\\.cpp$")
    string(JSON command GET "${commands}" ${i} command)
  endif()
endforeach()
if(command MATCHES "( -W[a-z]| -fsanitize| -fvisibility)")
  message(FATAL_ERROR "flags of the library leaked: ${command}")
elseif(NOT command MATCHES "-std=(gnu|c)\\+\\+20")
  message(FATAL_ERROR "the consumer is not compiled as C++20: ${command}")
endif()

run("${CMAKE_COMMAND}" --build "${WORK}/build" --parallel 2 --target consumer)
run("${WORK}/build/consumer")

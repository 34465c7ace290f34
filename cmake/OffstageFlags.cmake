# offstage_flags: warnings and sanitizers of our own targets. Linked privately, never exported.
add_library(offstage_flags INTERFACE)

option(OFFSTAGE_WARNINGS_AS_ERRORS "Treat warnings in our own code as errors" OFF)
set(OFFSTAGE_SANITIZE "" CACHE STRING "Sanitizers of our own code: address,undefined or thread")
set_property(CACHE OFFSTAGE_SANITIZE PROPERTY STRINGS "" "address,undefined" "thread")
if(NOT OFFSTAGE_SANITIZE MATCHES "^(|address|undefined|address,undefined|thread)$")
  message(FATAL_ERROR "OFFSTAGE_SANITIZE is '${OFFSTAGE_SANITIZE}'; it must be empty, "
    "address, undefined, address,undefined or thread")
endif()

target_compile_options(offstage_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Woverloaded-virtual -Wnon-virtual-dtor
  $<$<BOOL:${OFFSTAGE_WARNINGS_AS_ERRORS}>:-Werror>)
if(OFFSTAGE_SANITIZE)
  target_compile_options(offstage_flags INTERFACE
    -fsanitize=${OFFSTAGE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(offstage_flags INTERFACE -fsanitize=${OFFSTAGE_SANITIZE})
  if(OFFSTAGE_SANITIZE MATCHES "undefined")
    # The check of dynamic types refers to the type information of TorchScript's types, which
    # LibTorch does not export for all of them.
    target_compile_options(offstage_flags INTERFACE
      "$<$<IN_LIST:offstage::torchscript,$<TARGET_PROPERTY:LINK_LIBRARIES>>:-fno-sanitize=vptr>")
  endif()
  # g++ 12 sees uninitialized values in its own headers once it instruments them.
  target_compile_options(offstage_flags INTERFACE -Wno-maybe-uninitialized)
  if(OFFSTAGE_SANITIZE STREQUAL "thread")
    target_compile_options(offstage_flags INTERFACE -Wno-tsan)
  endif()
endif()

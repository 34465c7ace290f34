# offstage_flags: warnings and sanitizers of our own targets. Linked privately, never exported.
add_library(offstage_flags INTERFACE)

option(OFFSTAGE_WARNINGS_AS_ERRORS "Treat warnings in our own code as errors" OFF)
set(OFFSTAGE_SANITIZE "" CACHE STRING "Sanitizers of our own code: address,undefined or thread")

target_compile_options(offstage_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Woverloaded-virtual -Wnon-virtual-dtor
  $<$<BOOL:${OFFSTAGE_WARNINGS_AS_ERRORS}>:-Werror>)
if(OFFSTAGE_SANITIZE)
  target_compile_options(offstage_flags INTERFACE
    -fsanitize=${OFFSTAGE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(offstage_flags INTERFACE -fsanitize=${OFFSTAGE_SANITIZE})
endif()

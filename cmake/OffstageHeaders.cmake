# The public headers as file sets of the library targets: those of a part that not everybody builds
# belong to it, all others to offstage. They are installed from there, and the target
# all_verify_interface_header_sets compiles each of them alone.
#
# The list is globbed, unlike the lists of sources: a header that is forgotten in a list breaks
# nothing here and is missing only for the users of the installed package. A source file that is
# forgotten does not link.
file(GLOB_RECURSE _headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/offstage/*.hpp")
set(OFFSTAGE_LIBRARIES offstage)

# offstage_headers_of(<target> <regular expression>): takes the headers that match out of the list.
macro(offstage_headers_of target pattern)
  set(_part "${_headers}")
  list(FILTER _part INCLUDE REGEX "/include/offstage/${pattern}")
  list(FILTER _headers EXCLUDE REGEX "/include/offstage/${pattern}")
  if(TARGET ${target})
    list(APPEND OFFSTAGE_LIBRARIES ${target})
    target_sources(${target} PUBLIC
      FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${_part})
  endif()
endmacro()

offstage_headers_of(offstage_testing "testing/")
offstage_headers_of(offstage_torchscript "staging/script_")
offstage_headers_of(offstage_log "observe/log_")
offstage_headers_of(offstage_cuda "device/cuda_telemetry")
target_sources(offstage PUBLIC
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${_headers})
set_target_properties(${OFFSTAGE_LIBRARIES} PROPERTIES
  VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})

add_custom_target(offstage_libraries DEPENDS ${OFFSTAGE_LIBRARIES})

# The public headers as file sets of the library targets: testing/ belongs to offstage_testing,
# staging/script_* to offstage_torchscript, everything else to offstage. They are installed from there, and the target
# all_verify_interface_header_sets compiles each of them alone.
#
# The list is globbed, unlike the lists of sources: a header that is forgotten in a list breaks
# nothing here and is missing only for the users of the installed package. A source file that is
# forgotten does not link.
file(GLOB_RECURSE _headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/offstage/*.hpp")
set(_testing_headers "${_headers}")
set(_torchscript_headers "${_headers}")
list(FILTER _headers EXCLUDE REGEX "/include/offstage/(testing/|staging/script_)")
list(FILTER _testing_headers INCLUDE REGEX "/include/offstage/testing/")
list(FILTER _torchscript_headers INCLUDE REGEX "/include/offstage/staging/script_")

set(OFFSTAGE_LIBRARIES offstage)
target_sources(offstage PUBLIC
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${_headers})
if(TARGET offstage_torchscript)
  list(APPEND OFFSTAGE_LIBRARIES offstage_torchscript)
  target_sources(offstage_torchscript PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${_torchscript_headers})
endif()
if(TARGET offstage_testing)
  list(APPEND OFFSTAGE_LIBRARIES offstage_testing)
  target_sources(offstage_testing PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${_testing_headers})
endif()
set_target_properties(${OFFSTAGE_LIBRARIES} PROPERTIES
  VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})

add_custom_target(offstage_libraries DEPENDS ${OFFSTAGE_LIBRARIES})

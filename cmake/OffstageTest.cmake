# offstage_add_test(NAME <name> SOURCES <files> [LIBRARIES <targets>] [LABELS <labels>] [TIMEOUT <s>])
#
# One GoogleTest executable, one ctest entry for each of its tests.
include(GoogleTest)
find_package(GTest REQUIRED)

function(offstage_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE
    ${arg_LIBRARIES} offstage_flags GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${arg_NAME} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

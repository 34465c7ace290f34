# offstage_add_test(NAME <name> SOURCES <files> [LIBRARIES <targets>] [LABELS <labels>] [TIMEOUT <s>])
#
# One GoogleTest executable and one ctest entry for it: starting LibTorch costs half a second, which
# an entry for each test would pay hundreds of times.
find_package(GTest REQUIRED)

function(offstage_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(OFFSTAGE_SANITIZE)  # Ten times as slow is usual.
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  set_target_properties(${arg_NAME} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${arg_NAME} PRIVATE
    ${arg_LIBRARIES} offstage_flags GTest::gmock GTest::gtest_main)
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} --gtest_brief=1)
  set_tests_properties(${arg_NAME} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

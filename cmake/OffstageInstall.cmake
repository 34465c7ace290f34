# Libraries, headers and a package file that find_package(offstage) reads. FindLibTorch.cmake is
# installed beside it: consumers need it to find the LibTorch that the libraries were built with.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/offstage")
foreach(_library IN LISTS OFFSTAGE_LIBRARIES)  # offstage_testing is offstage::testing, and so on.
  string(REGEX REPLACE "^offstage_" "" _name "${_library}")
  set_target_properties(${_library} PROPERTIES EXPORT_NAME "${_name}")
endforeach()
install(TARGETS ${OFFSTAGE_LIBRARIES} EXPORT offstage-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT offstage
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT offstage
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT offstage)
if(TARGET offstage_doctor)
  # It is run by hand, with no environment set: it finds LibTorch where it was found here.
  set_target_properties(offstage_doctor PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS offstage_doctor
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT offstage_tools)
endif()
install(EXPORT offstage-targets NAMESPACE offstage::
  DESTINATION "${_package_dir}" COMPONENT offstage)

string(REGEX MATCH "^[0-9]+\\.[0-9]+" _libtorch_minor "${LibTorch_VERSION}")
string(REPLACE "." ";" _next "${_libtorch_minor}")
list(POP_FRONT _next _major _minor)
math(EXPR _minor "${_minor} + 1")
set(_libtorch_next "${_major}.${_minor}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/offstage-config.cmake.in"
  "${PROJECT_BINARY_DIR}/offstage-config.cmake" INSTALL_DESTINATION "${_package_dir}")
# Below 1.0 a minor release may break.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/offstage-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/offstage-config.cmake"
  "${PROJECT_BINARY_DIR}/offstage-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION "${_package_dir}" COMPONENT offstage)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT offstage)

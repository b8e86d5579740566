# What `cmake --install` lays down besides the command: libraries, headers, and
# the package that find_package(accordion) reads.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY ACCORDION_LIBRARIES)
# accordion::accordion, all of them at once.
add_library(accordion_all INTERFACE)
add_library(accordion::accordion ALIAS accordion_all)
set_target_properties(accordion_all PROPERTIES EXPORT_NAME accordion)
target_link_libraries(accordion_all INTERFACE ${libraries})

install(TARGETS ${libraries} accordion_all EXPORT accordionTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/accordion"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/accordion")
install(EXPORT accordionTargets NAMESPACE accordion::
  DESTINATION "${package_folder}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/accordionConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/accordionConfig.cmake"
  INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/accordionConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/accordionConfig.cmake"
  "${PROJECT_BINARY_DIR}/accordionConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/AccordionCuda.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/AccordionTorch.cmake"
  DESTINATION "${package_folder}")

# The library for C and C++: find_package(tautline) gives the targets tautline::tautline and tautline::static.
get_filename_component(_tautline_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET tautline::tautline)
  find_package(Threads REQUIRED)

  add_library(tautline::tautline SHARED IMPORTED)
  set_target_properties(tautline::tautline PROPERTIES
    IMPORTED_LOCATION "${_tautline_prefix}/lib/libtautline.so.0"
    IMPORTED_SONAME "libtautline.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_tautline_prefix}/include")

  add_library(tautline::static STATIC IMPORTED)
  set_target_properties(tautline::static PROPERTIES
    IMPORTED_LOCATION "${_tautline_prefix}/lib/libtautline.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_tautline_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;gcc_s;util;rt;m;dl")
endif()

# LibTorch, as it lies in PyTorch's wheel or in a LibTorch archive, imported by us.
#
# The CMake package that ships with a CUDA LibTorch insists on a CUDA Toolkit even to link CPU code. We need two
# libraries: libtorch_cpu (ATen, autograd) and libc10. libtorch_cpu of the CUDA wheel needs libcupti and libcudart at run
# time, which come as wheels of their own and lie where its run path looks. With a toolkit, rose::torch_cuda has the rest.
#
# Found in: ROSE_TORCH_ROOT (the folder with include/ and lib/), Torch_DIR (…/share/cmake/Torch), the user cache.

if(NOT DEFINED ROSE_TORCH OR NOT ROSE_TORCH STREQUAL "OFF")
  set(ROSE_TORCH_ROOT "" CACHE PATH "LibTorch: the folder that has include/ and lib/; empty: look in Torch_DIR and the cache")
  set(_rose_torch_roots "")
  if(ROSE_TORCH_ROOT)
    list(APPEND _rose_torch_roots "${ROSE_TORCH_ROOT}")
  else()
    foreach(_dir IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}")
      if(_dir)
        cmake_path(SET _root NORMALIZE "${_dir}/../../..")
        list(APPEND _rose_torch_roots "${_root}")
      endif()
    endforeach()
    if(NOT _rose_torch_roots)
      file(GLOB _rose_torch_roots "${ROSE_VENV}/lib/python3*/site-packages/torch")
    endif()
  endif()

  set(_rose_torch_found "")
  foreach(_root IN LISTS _rose_torch_roots)
    if(EXISTS "${_root}/lib/libtorch_cpu.so" AND EXISTS "${_root}/include/ATen/ATen.h")
      cmake_path(SET _rose_torch_found NORMALIZE "${_root}")
      break()
    endif()
  endforeach()

  if(_rose_torch_found)
    set(ROSE_TORCH_VERSION unknown)
    foreach(_file IN ITEMS "${_rose_torch_found}/version.py" "${_rose_torch_found}/build-version")
      if(EXISTS "${_file}" AND ROSE_TORCH_VERSION STREQUAL "unknown")
        file(STRINGS "${_file}" _lines REGEX "^(__version__ = )?'?[0-9]+\\.[0-9]+")
        if(_lines MATCHES "([0-9]+\\.[0-9]+\\.[0-9]+[^']*)")
          set(ROSE_TORCH_VERSION "${CMAKE_MATCH_1}")
        endif()
      endif()
    endforeach()

    # The companions of the wheel (nvidia/*/lib beside torch/), for the linker; the loader finds them by run path.
    file(GLOB _rose_nvidia "${_rose_torch_found}/../nvidia/*/lib")
    if(NOT TARGET rose::torch)
      # The wheel ships other libraries' headers beside its own, fmt among them in another version than the system's:
      # look into LibTorch's folders alone.
      set(_rose_torch_include "${CMAKE_BINARY_DIR}/torch-include")
      file(MAKE_DIRECTORY "${_rose_torch_include}")
      foreach(_folder IN ITEMS ATen c10 torch caffe2)
        file(CREATE_LINK "${_rose_torch_found}/include/${_folder}" "${_rose_torch_include}/${_folder}" SYMBOLIC)
      endforeach()
      add_library(rose::c10 SHARED IMPORTED GLOBAL)
      set_target_properties(rose::c10 PROPERTIES IMPORTED_LOCATION "${_rose_torch_found}/lib/libc10.so")
      add_library(rose::torch SHARED IMPORTED GLOBAL)
      set_target_properties(rose::torch PROPERTIES
        IMPORTED_LOCATION "${_rose_torch_found}/lib/libtorch_cpu.so"
        INTERFACE_INCLUDE_DIRECTORIES "${_rose_torch_include};${_rose_torch_include}/torch/csrc/api/include"
        INTERFACE_LINK_LIBRARIES rose::c10)
      foreach(_dir IN LISTS _rose_nvidia)
        set_property(TARGET rose::torch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_dir}")
      endforeach()
    endif()

    # The CUDA half, where a toolkit is used and the wheel's own CUDA companions (cuDNN for one) are there to load.
    file(GLOB _rose_cudnn "${_rose_torch_found}/../nvidia/cudnn/lib/libcudnn.so*" "${_rose_torch_found}/lib/libcudnn*")
    if(ROSE_HAVE_CUDA AND _rose_cudnn AND EXISTS "${_rose_torch_found}/lib/libtorch_cuda.so" AND NOT TARGET rose::torch_cuda)
      add_library(rose::c10_cuda SHARED IMPORTED GLOBAL)
      set_target_properties(rose::c10_cuda PROPERTIES IMPORTED_LOCATION "${_rose_torch_found}/lib/libc10_cuda.so")
      add_library(rose::torch_cuda SHARED IMPORTED GLOBAL)
      set_target_properties(rose::torch_cuda PROPERTIES
        IMPORTED_LOCATION "${_rose_torch_found}/lib/libtorch_cuda.so"
        INTERFACE_LINK_LIBRARIES "rose::c10_cuda;rose::torch"
        INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")  # it is there to register itself: no symbol of it is named
    endif()
  elseif(ROSE_TORCH STREQUAL "ON")
    list(JOIN _rose_torch_roots "\n  " _rose_torch_roots)
    message(FATAL_ERROR "LibTorch was not found. Looked in:\n  ${_rose_torch_roots}\n"
      "scripts/setup.sh puts it in the user cache (${ROSE_CACHE_DIR}); -DTorch_DIR=…/share/cmake/Torch names one that you have; "
      "-DROSE_TORCH=OFF builds the part of RoseLLM that needs none.")
  endif()
endif()

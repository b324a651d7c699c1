# cuBLASLt, beside the CUDA runtime that CMake links: for the matrix products that it computes in the canonical order.
#
# There may be two copies, the toolkit's and the one that came with LibTorch's wheel. Both have the same SONAME, and a process
# loads one of them: the one that is linked here, so prefer LibTorch's where there is one.
if(ROSE_HAVE_CUDA AND NOT TARGET rose::cublaslt)
  get_filename_component(_rose_cuda_root "${ROSE_NVCC}" REALPATH)
  get_filename_component(_rose_cuda_root "${_rose_cuda_root}" DIRECTORY)
  get_filename_component(_rose_cuda_root "${_rose_cuda_root}" DIRECTORY)
  set(_rose_cuda_wheel "${ROSE_TORCH_ROOT}/../nvidia/cu13")
  if(NOT ROSE_TORCH_ROOT OR NOT EXISTS "${_rose_cuda_wheel}")
    file(GLOB _rose_cuda_wheel "${ROSE_VENV}/lib/python3*/site-packages/nvidia/cu13")
  endif()
  find_library(ROSE_CUBLASLT_LIBRARY NAMES libcublasLt.so.13 cublasLt
    HINTS ${_rose_cuda_wheel} "${_rose_cuda_root}" PATHS /usr/local/cuda /usr/local
    PATH_SUFFIXES lib lib64 targets/x86_64-linux/lib)
  find_path(ROSE_CUBLASLT_INCLUDE cublasLt.h
    HINTS "${_rose_cuda_root}" ${_rose_cuda_wheel} PATHS /usr/local/cuda /usr/local
    PATH_SUFFIXES include targets/x86_64-linux/include)
  mark_as_advanced(ROSE_CUBLASLT_LIBRARY ROSE_CUBLASLT_INCLUDE)
  if(NOT ROSE_CUBLASLT_LIBRARY OR NOT ROSE_CUBLASLT_INCLUDE)
    message(FATAL_ERROR "nvcc is there (${ROSE_NVCC}), but cuBLASLt is not: it is part of the CUDA Toolkit "
      "(Debian package libcublas-dev-13-0), or configure with -DROSE_CUDA=OFF.")
  endif()
  add_library(rose::cublaslt SHARED IMPORTED GLOBAL)
  set_target_properties(rose::cublaslt PROPERTIES IMPORTED_LOCATION "${ROSE_CUBLASLT_LIBRARY}" IMPORTED_NO_SONAME OFF)
  # Not as an include directory of the target: the toolkit's own is implicit for .cu files, the only ones that include it.
  if(NOT EXISTS "${_rose_cuda_root}/include/cublasLt.h")
    set_target_properties(rose::cublaslt PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ROSE_CUBLASLT_INCLUDE}")
  endif()
endif()

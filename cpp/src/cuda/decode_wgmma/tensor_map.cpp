// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode_wgmma/tensor_map.h"

#include <cudaTypedefs.h>

#include "cuda/decode_wgmma/variants.h"

namespace pagedecode::cuda {
namespace {

// Through the runtime: libcuda is not linked, so that the library loads without a driver.
PFN_cuTensorMapEncodeTiled_v12000 encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

cudaError_t encode_tensor_map(const DecodeProblem& p, const CacheView& cache, CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encode_function();
  if (!encode) return cudaErrorNotSupported;
  const bool bytes = is_one_byte(cache.dtype);
  const cuuint64_t size = bytes ? 1 : 2;
  // The stride of a dimension of size 1 means nothing, but has to be encoded.
  const auto stride = [&](std::int64_t elements, std::int64_t extent) -> cuuint64_t {
    return extent == 1 ? 16 : static_cast<cuuint64_t>(elements) * size;
  };
  const cuuint64_t extents[4] = {
      static_cast<cuuint64_t>(p.head_dim), static_cast<cuuint64_t>(p.num_kv_heads),
      static_cast<cuuint64_t>(p.page_size), static_cast<cuuint64_t>(p.pages.num_pages)};
  const cuuint64_t strides[3] = {stride(cache.head_stride, p.num_kv_heads),
                                 stride(cache.token_stride, p.page_size),
                                 stride(cache.page_stride, p.pages.num_pages)};
  const int part = wgmma_part_bytes(p.head_dim, bytes);
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(part / static_cast<int>(size)), 1,
                             static_cast<cuuint32_t>(box_tokens(p.page_size)), 1};
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  // NOTE: L2 promotion to 256 bytes would fetch the neighbour head's row: 10 % of the bandwidth.
  const CUresult r =
      encode(map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 4,
             cache.data, extents, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
             part == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace pagedecode::cuda

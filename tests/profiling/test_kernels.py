"""Kernels are told apart by their names: those that real traces hold."""

from __future__ import annotations

import pytest

from exporter.profiling.kernels import class_of, short

NAMES = {
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "matmul",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1": "matmul",
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT": "matmul",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256>(Params)": "matmul",
    "Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1": "matmul",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)": "matmul",
    "triton_tem_fused_mm_3": "matmul",
    "void gemv2T_kernel_val<int, int, float, float>(cublasGemvParamsEx)": "matmul",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 4>>(Flash_fwd_params)": "attention",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...":
        "attention",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)":
        "attention",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)":
        "norm",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1>(...)": "norm",
    "triton_red_fused__to_copy_add_mul_native_layer_norm_2": "norm",
    "triton_poi_fused_addmm_gelu_3": "elementwise",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)":
        "elementwise",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>":
        "elementwise",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)":
        "elementwise",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)":
        "communication",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)": "communication",
    "void deep_ep::intranode::dispatch<8, 768>(int4*)": "communication",
    "rcclGenericKernel_1(ncclDevKernelArgsStorage)": "communication",
    "Memcpy HtoD (Pageable -> Device)": "copy",
    "Memset (Device)": "copy",
    "void my_own_thing(int)": "other",
    "": "other",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_kernel_is_told_by_its_name(name: str, kind: str) -> None:
    """Names as cuBLAS, CUTLASS, Triton, NCCL and PyTorch give them."""
    assert class_of(name) == kind


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("void flash_fwd_kernel<Traits<128>, true>(Params)", "flash_fwd_kernel"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>(Params)",
            "cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            "at::native::vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)",
            "at::native::vectorized_layer_norm_kernel",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("x" * 200, "x" * 95 + "…"),
        ("bad\nname\x00", "badname"),
    ],
)
def test_a_label_is_short_and_still_says_what_ran(name: str, label: str) -> None:
    """Template arguments go, but for the one that a frame runs."""
    assert short(name) == label

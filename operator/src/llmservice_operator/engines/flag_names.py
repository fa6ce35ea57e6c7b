"""The names of vLLM's flags, by the releases that have them.

Read from the argument parsers (`vllm/engine/arg_utils.py`, `vllm/entrypoints/**/cli_args.py`) of vLLM 0.8.5, 0.11.0,
0.14.0, 0.19.0, 0.26.0 and 0.33.0. What lies between two of these isn't known, so a name carries the last release that
was seen without it and the first that was seen without it again.
"""

SAMPLED = ("0.8.5", "0.11.0", "0.14.0", "0.19.0", "0.26.0", "0.33.0")
"""The releases whose parsers were read."""

NAMES: dict[tuple[str, str], str] = {
    ("", ""): """
        additional_config allow_credentials allowed_headers allowed_local_media_path allowed_methods
        allowed_origins api_key block_size chat_template chat_template_content_format code_revision
        collect_detailed_traces compilation_config config_format cpu_offload_gb data_parallel_size
        disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce disable_fastapi_docs
        disable_log_stats disable_sliding_window disable_uvicorn_access_log distributed_executor_backend
        download_dir dtype enable_auto_tool_choice enable_chunked_prefill enable_expert_parallel enable_lora
        enable_prefix_caching enable_prompt_tokens_details enable_request_id_headers enable_server_load_tracking
        enable_sleep_mode enable_ssl_refresh enforce_eager fully_sharded_loras generation_config
        gpu_memory_utilization hf_config_path hf_overrides hf_token host ignore_patterns kv_cache_dtype
        kv_transfer_config limit_mm_per_prompt load_format long_prefill_token_threshold lora_dtype lora_modules
        max_cpu_loras max_log_len max_logprobs max_lora_rank max_loras max_model_len max_num_batched_tokens
        max_num_seqs max_parallel_loading_workers middleware mm_processor_kwargs model model_impl
        model_loader_extra_config num_gpu_blocks_override otlp_traces_endpoint override_generation_config
        pipeline_parallel_size port prefix_caching_hash_algo quantization ray_workers_use_nsight
        reasoning_parser response_role return_tokens_as_token_ids revision root_path scheduler_cls
        scheduling_policy seed served_model_name show_hidden_metrics_for_version skip_tokenizer_init
        speculative_config ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_keyfile tensor_parallel_size tokenizer
        tokenizer_mode tokenizer_revision tool_call_parser tool_parser_plugin trust_remote_code use_tqdm_on_load
        uvicorn_log_level worker_cls worker_extension_cls
    """,
    ("", "0.11.0"): """
        device disable_async_output_proc enable_prompt_adapter enable_reasoning guided_decoding_backend
        long_lora_scaling_factors max_prompt_adapter_token max_prompt_adapters max_seq_len_to_capture
        multi_step_stream_outputs num_scheduler_steps override_neuron_config preemption_mode prompt_adapters
        qlora_adapter_name_or_path scheduler_delay_factor tokenizer_pool_extra_config tokenizer_pool_size
        tokenizer_pool_type use_v2_block_manager
    """,
    ("", "0.14.0"): """
        disable_mm_preprocessor_cache enable_lora_bias lora_extra_vocab_size num_lookahead_slots
        override_pooler_config rope_scaling rope_theta task
    """,
    ("", "0.19.0"): """
        disable_frontend_multiprocessing disable_log_requests logits_processor_pattern swap_space
    """,
    ("", "0.33.0"): """
        calculate_kv_scales max_long_partial_prefills max_num_partial_prefills
    """,
    ("0.11.0", ""): """
        aggregate_engine_logging all2all_backend allow_deprecated_quantization attention_backend
        attention_config cp_kv_cache_interleave_size cudagraph_capture_sizes cudagraph_metrics
        data_parallel_external_lb dcp_kv_cache_interleave_size default_chat_template_kwargs
        disable_nccl_for_dp_synchronization ec_transfer_config enable_layerwise_nvtx_tracing enable_log_deltas
        enable_logging_iteration_details enable_mfu_metrics enable_mm_embeds enable_offline_docs
        enable_return_routed_experts enable_tower_connector_lora kv_cache_metrics kv_cache_metrics_sample
        kv_offloading_backend kv_offloading_size mamba_block_size master_addr master_port
        max_cudagraph_capture_size mm_encoder_attn_backend nnodes node_rank optimization_level
        prefill_context_parallel_size profiler_config reasoning_parser_plugin stream_interval tokens_only
        ubatch_size
    """,
    ("0.14.0", ""): """
        cpu_offload_params dcp_comm_backend disable_access_log_for_endpoints distributed_timeout_seconds
        enable_elastic_ep enable_ep_weight_filter enable_flashinfer_autotune fail_on_environ_validation
        gdn_prefill_backend kernel_config kv_cache_dtype_skip_layers language_model_only lora_target_modules
        mamba_cache_mode mm_encoder_only mm_tensor_ipc moe_backend offload_backend offload_group_size
        offload_num_in_group offload_params offload_prefetch_step performance_mode reasoning_config
        renderer_num_workers scheduler_reserve_full_isl shutdown_timeout specialize_active_lora ssl_ciphers
        weight_transfer_config
    """,
    ("0.19.0", ""): """
        cpu_distributed_timeout_seconds data_parallel_multi_port_external_lb data_parallel_supervisor_port
        device_ids diffusion_config dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s
        dp_supervisor_probe_timeout_s enable_cumem_allocator enable_flash_late_interaction
        enable_mamba_cache_stochastic_rounding enable_mixed_moe_lora_format enable_moe_shared_loras
        enable_per_request_metrics fingerprint_mode fingerprint_value grpc ir_op_priority jit_monitor_mode
        jit_monitor_verbose linear_backend mamba_backend mamba_cache_philox_rounds max_num_scheduled_tokens
        mm_encoder_attn_dtype mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_margin
        mm_encoder_fp8_scale_save_path mm_ipc_gpu_memory_gb model_class_overrides numa_bind numa_bind_cpus
        numa_bind_nodes prefill_schedule_interval prefix_match_unit quantization_config
        safetensors_prefetch_block_size safetensors_prefetch_num_threads spec_method spec_model spec_tokens
        use_fp64_gumbel watermark
    """,
    ("0.19.0", "0.33.0"): """
        enable_bf16x3_router_gemm
    """,
    ("0.26.0", ""): """
        anthropic_disabled_thinking_effort aux_output_config cohere_format cohere_is_reasoning_model
        custom_histogram_buckets dcp_q_replicate dp_sync_interval ec_manager_config elastic_ep_max_dp_size
        enable_batch_sharded_sampling enable_fault_tolerance enable_hc_sp enable_mamba_shared_prefix_checkpoint
        enable_nccl_comm_suspend enable_scale_out enable_shm_tensor_arena enable_trace_replay engram_config
        fault_tolerance_config grpc_port kda_decode_backend kda_prefill_backend log_level logging_config
        long_prefill_token_threshold_adaptive mamba_ssu_algorithm max_lora_cls_labels max_num_active_seqs
        max_num_queued_reqs max_num_queued_tokens mm_device_do_normalize mm_hasher_algorithm mm_processor_device
        monokernel per_request_spec_decode_metrics prefix_cache_retention_interval reasoning_effort_map
        replayssm_buffer_len return_sampling_mask sleep_mode_backend sleep_mode_offload_cudagraph
        sleep_preserve_parameter_names sparse_indexer_topk_backend sse_keep_alive_interval swa_bounded_replay
        tool_strict_level trust_request_mm_kwargs use_replayssm video_pruning_method watchdog_config
        watermark_config
    """,
    ("0.8.5", ""): """
        allowed_media_domains api_server_count async_scheduling config convert data_parallel_address
        data_parallel_backend data_parallel_hybrid_lb data_parallel_rank data_parallel_rpc_port
        data_parallel_size_local data_parallel_start_rank dbo_decode_token_threshold dbo_prefill_token_threshold
        decode_context_parallel_size default_mm_loras disable_hybrid_kv_cache_manager enable_dbo enable_eplb
        enable_force_include_usage enable_log_outputs enable_log_requests enable_prompt_embeds
        enable_tokenizer_info_endpoint eplb_config exclude_tools_when_tool_choice_none expert_placement_strategy
        h11_max_header_count h11_max_incomplete_event_size headless interleave_mm_strings io_processor_plugin
        kv_cache_memory_bytes kv_events_config kv_sharing_fast_prefill log_config_file log_error_stack
        logits_processors logprobs_mode mamba_cache_dtype mamba_ssm_cache_dtype media_io_kwargs
        mm_encoder_tp_mode mm_processor_cache_gb mm_processor_cache_type mm_shm_cache_max_object_size_mb
        pooler_config pt_load_map_location runner safetensors_load_strategy skip_mm_profiling
        structured_outputs_config tool_server trust_request_chat_template uds video_pruning_rate
    """,
    ("0.8.5", "0.14.0"): """
        cuda_graph_sizes enable_multimodal_encoder_data_parallel eplb_log_balancedness eplb_step_interval
        eplb_window_size num_redundant_experts
    """,
    ("0.8.5", "0.33.0"): """
        override_attention_dtype
    """,
}
"""(last release without it, first release without it again) → names; empty: none was seen."""

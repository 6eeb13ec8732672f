cat > config.yml <<EOL
enable_attention_dp: true
kv_cache_config:
  free_gpu_memory_fraction: 0.85
  dtype: fp8
EOL
mpirun -n 1 trtllm-serve nvidia/DeepSeek-R1-0528-FP4 --host 0.0.0.0 --backend pytorch --max_batch_size 256 --max_num_tokens 8192 \
  --tp_size 8 --ep_size 8 --extra_llm_api_options config.yml

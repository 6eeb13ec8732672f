# One prefill server and two decode servers behind a proxy.
MODEL=Qwen/Qwen3-30B-A3B
CUDA_VISIBLE_DEVICES=0,1 vllm serve $MODEL --tensor-parallel-size 2 --enable-expert-parallel --port 8100 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}' &
CUDA_VISIBLE_DEVICES=2,3 vllm serve $MODEL -tp 2 --port 8200 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}' &
CUDA_VISIBLE_DEVICES=4,5 vllm serve $MODEL -tp 2 --port 8201 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}' &
python3 disagg_proxy.py --port 8000 &
python3 -m sglang.bench_serving --backend vllm --dataset-name random --random-input 1024 --random-output 512 --random-range-ratio 0.5 \
  --num-prompts 640 --max-concurrency 64

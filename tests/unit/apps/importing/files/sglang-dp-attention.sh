# The same command on both nodes, but for the rank.
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend deepep \
  --dist-init-addr 10.0.0.1:5000 --nnodes 2 --node-rank 0 --trust-remote-code --mem-fraction-static 0.85
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend deepep \
  --dist-init-addr 10.0.0.1:5000 --nnodes 2 --node-rank 1 --trust-remote-code --mem-fraction-static 0.85

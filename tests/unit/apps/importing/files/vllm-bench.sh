#!/bin/bash
# One server in a container, then the client that measures it.
export HF_TOKEN=secret
docker run --gpus all -v ./models:/models --env "HF_TOKEN=$HF_TOKEN" -p 8000:8000 --ipc=host \
  vllm/vllm-openai:v0.11.0 --model meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --max-num-seqs 128 \
  --gpu-memory-utilization 0.92 &
sleep 60
for rate in 4; do
  vllm bench serve --model meta-llama/Llama-3.1-70B-Instruct --dataset-name random --random-input-len 2000 \
    --random-output-len 200 --num-prompts 300 --request-rate $rate
done

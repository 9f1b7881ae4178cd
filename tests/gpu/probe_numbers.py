"""Parameters that want a Python number, given a 0-dim device tensor: which read it, and fail under CUDA graph capture.

Names: `x` 8x8 floats, `v` 8 floats, `i` two int64 indices, `n` a 0-dim int (2), `s` a 0-dim float (0.5), all on the GPU.
Not asked: dimensions (`dim=`), which nobody takes from a tensor.
"""

from __future__ import annotations

import functools

from _harness import DEVICE, main, measure_snippet

TITLE = "numbers that are device tensors under torch.cuda.graph"
FRESH_PROCESS = False

SNIPPETS = [
    "r = torch.multinomial(v,n)",
    "r = v.multinomial(n)",
    "r = torch.multinomial(v,num_samples=n)",
    "r = torch.narrow(x,0,n,2)",
    "r = torch.narrow(x,0,0,n)",
    "r = x.narrow(0,n,2)",
    "r = x.narrow(0,0,n)",
    "r = torch.roll(x,n,0)",
    "r = torch.roll(x,shifts=n,dims=0)",
    "r = x.roll(n,0)",
    "r = torch.chunk(x,n)",
    "r = x.chunk(n)",
    "r = torch.split(x,n)",
    "r = x.split(n)",
    "r = x.unfold(0,n,1)",
    "r = x.unfold(0,2,n)",
    "r = torch.diag(v,n)",
    "r = torch.diagonal(x,n)",
    "r = torch.diag_embed(v,n)",
    "r = torch.rot90(x,n)",
    "r = torch.histc(v,bins=n)",
    "r = x.unsqueeze(n)",
    "r = torch.addcmul(x,x,x,value=s)",
    "r = torch.addcdiv(x,x,x,value=s)",
    "r = x.new_full((2,),s)",
    "r = x.clamp(min=s)",
    "r = torch.clamp(x,s,s+1)",
    "r = x.fill_(s)",
    "r = x.lerp(x,s)",
    "r = x.pow(n)",
    "r = F.dropout(x,s)",
    "r = F.layer_norm(x,(8,),eps=s)",
    "r = F.normalize(x,eps=s)",
    "r = F.normalize(x,p=n)",
    "r = F.leaky_relu(x,s)",
    "r = F.threshold(x,s,0.)",
    "r = F.hardtanh(x,0.,s)",
    "r = torch.linalg.vector_norm(x,n)",
    "r = torch.norm(x,n)",
    "r = x.norm(n)",
    "r = torch.cdist(x,x,p=s)",
    "r = torch.quantile(v,s)",
    "r = torch.bernoulli(x,s)",
    "r = x.bernoulli_(s)",
    "r = x.uniform_(0.,s)",
    "r = x.normal_(0.,s)",
    "r = torch.normal(0.,s,(2,))",
    "r = torch.baddbmm(x[None],x[None],x[None],beta=s)",
    "r = x.add(x,alpha=s)",
    "r = torch.index_add(x,0,i,x[:2],alpha=s)",
    "r = torch.isclose(x,x,rtol=s)",
    "r = torch.nan_to_num(x,nan=s)",
    "r = torch.repeat_interleave(x,n,dim=0)",
    "r = x.repeat_interleave(n,dim=0)",
    "r = torch.tile(v,(n,))",
    "r = x.expand(n+6,8)",
    "r = x.reshape(n,-1)",
    "r = x.view(n,-1)",
    "r = torch.stft(v.repeat(100),n*8,return_complex=True,window=torch.ones(16,device='cuda'))",
    "r = torch.fft.fft(v,n)",
    "r = torch.fft.rfft(v,n=n)",
    "r = F.one_hot(i,n)",
    "r = F.pad(v,(n,0))",
    "r = F.adaptive_avg_pool1d(x,n)",
    "r = F.avg_pool1d(x,n)",
    "r = F.max_pool1d(x,n)",
    "r = F.pixel_shuffle(torch.rand(1,4,2,2,device='cuda'),n)",
    "r = F.group_norm(x,n)",
    "r = torch.kthvalue(x,n)",
    "r = torch.topk(x,n)",
    "r = torch.select(x,0,n)",
    "r = x.select(0,n)",
    "r = torch.vander(v,n)",
    "r = torch.combinations(v,n)",
    "r = torch.tril_indices(n,n,device='cuda')",
    "r = torch.hann_window(n,device='cuda')",
    "r = torch.randint(0,n,(2,),device='cuda')",
    "r = torch.randint(high=n,size=(2,),device='cuda')",
    "r = torch.randperm(n,device='cuda')",
    "r = torch.rand(n,device='cuda')",
    "r = torch.empty(n,device='cuda')",
    "r = torch.logspace(0,s,3,device='cuda')",
    "r = torch.arange(n,device='cuda')",
    "r = torch.ones_like(x)*n",
    "r = torch.full_like(x,s)",
    "r = torch.full_like(x,fill_value=s)",
    "r = torch.nn.functional.scaled_dot_product_attention(x[None,None],x[None,None],x[None,None],scale=s)",
    "r = torch.nn.functional.scaled_dot_product_attention(x[None,None],x[None,None],x[None,None],dropout_p=s)",
    "r = torch.clamp_min(x,s)",
    "r = F.softplus(x,beta=s)",
    "r = F.elu(x,s)",
    "r = F.celu(x,s)",
    "r = F.gumbel_softmax(x,tau=s)",
    "r = F.cross_entropy(x,torch.zeros(8,dtype=torch.long,device='cuda'),label_smoothing=s)",
    "r = x.index_fill(0,i,s)",
    "r = torch.index_fill(x,0,i,s)",
    "r = x.masked_fill(x>0,s)",
    "r = torch.where(x>0,s,x)",
    "r = x.tril(n)",
    "r = torch.triu(x,diagonal=n)",
    "r = x.repeat(n,1)",
    "r = x.resize_(n,4)",
]


def environment() -> dict[str, object]:
    import torch
    import torch.nn.functional as functional

    return {
        "F": functional,
        "x": torch.rand(8, 8, device=DEVICE),
        "v": torch.rand(8, device=DEVICE),
        "i": torch.tensor([0, 1], device=DEVICE),
        "n": torch.tensor(2, device=DEVICE),
        "s": torch.tensor(0.5, device=DEVICE),
    }


def cases():
    return {code: functools.partial(measure_snippet, code, environment) for code in SNIPPETS}


main(globals())

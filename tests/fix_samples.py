"""What fixes make of the body of a forward: before and after. The tests apply them, the GPU suite runs both.

`x` and `y` are square tensors on the GPU, `n` an int, `v` a float. No imports here: the GPU suite needs nothing but torch.
"""

# The same outcome, and an error where there was one.
SAFE = {
    "tensor of a float": ("t = torch.tensor(2.0, device=x.device)", "t = torch.full((), 2.0, device=x.device)"),
    "tensor of an int": ("t = torch.tensor(2, device='cuda')", "t = torch.full((), 2, device='cuda')"),
    "tensor of a bool": ("t = torch.tensor(True, device='cuda')", "t = torch.full((), True, device='cuda')"),
    "tensor of minus one": ("t = torch.tensor(-1, device='cuda')", "t = torch.full((), -1, device='cuda')"),
    "keeps dtype": (
        "t = torch.tensor(2.0, dtype=x.dtype, device=x.device)",
        "t = torch.full((), 2.0, dtype=x.dtype, device=x.device)",
    ),
    "as_tensor": ("t = torch.as_tensor(2.0, device=x.device)", "t = torch.full((), 2.0, device=x.device)"),
    "an int by name": ("t = torch.tensor(n, device=x.device)", "t = torch.full((), n, device=x.device)"),
    "a size": ("t = torch.tensor(x.shape[0] - 1, device='cuda')", "t = torch.full((), x.shape[0] - 1, device='cuda')"),
    "a float by name, with dtype": (
        "t = torch.tensor(v, device='cuda', dtype=torch.float32)",
        "t = torch.full((), v, device='cuda', dtype=torch.float32)",
    ),
    "data by keyword": (
        "t = torch.tensor(device='cuda', data=2.0)",
        "t = torch.full(size=(), device='cuda', fill_value=2.0)",
    ),
    "equal elements": ("t = torch.tensor([0.5, 0.5], device='cuda')", "t = torch.full((2,), 0.5, device='cuda')"),
    "a repeated element": ("t = torch.tensor([1] * 4, device='cuda')", "t = torch.full((4,), 1, device='cuda')"),
    "limits of a dtype": (
        "t = torch.tensor(torch.finfo(x.dtype).min, device=x.device)",
        "t = torch.full((), torch.finfo(x.dtype).min, device=x.device)",
    ),
    "new_tensor with dtype": (
        "t = x.new_tensor(2.0, dtype=torch.float32)",
        "t = x.new_full((), 2.0, dtype=torch.float32)",
    ),
    "twice in a line": (
        "t = torch.tensor(1.0, device='cuda') + torch.tensor(2.0, device='cuda')",
        "t = torch.full((), 1.0, device='cuda') + torch.full((), 2.0, device='cuda')",
    ),
    "several lines": (
        """
        t = torch.tensor(
            2.0,  # two

            device=x.device,
            dtype = x.dtype,  # as x

        ) + 1  # and one
        """,
        """
        t = torch.full(
            (), 2.0,  # two

            device=x.device,
            dtype = x.dtype,  # as x

        ) + 1  # and one
        """,
    ),
    "a chain in parentheses": (
        """
        t = (
            torch  # the library
            .tensor(2.0, device=x.device)
            .exp()
        )
        """,
        """
        t = (
            torch  # the library
            .full((), 2.0, device=x.device)
            .exp()
        )
        """,
    ),
    "element": (
        "z = torch.zeros(4, device='cuda')\nz[3] = 1.0  # last",
        "z = torch.zeros(4, device='cuda')\nz[3].fill_(1.0)  # last",
    ),
    "element of two dimensions": (
        "z = torch.zeros(4, 4, device='cuda')\nz[n, -1] = n * 2",
        "z = torch.zeros(4, 4, device='cuda')\nz[n, -1].fill_(n * 2)",
    ),
    "element, over lines": (
        "z = torch.zeros(4, device='cuda')\nz[\n    3\n] = \\\n    (1.0\n     + n)  # sum",
        "z = torch.zeros(4, device='cuda')\nz[\n    3\n].fill_(\\\n    (1.0\n     + n))  # sum",
    ),
    "element, no spaces": (
        "z = torch.zeros(4, device='cuda')\nz[3]=1.0; z[2]=n",
        "z = torch.zeros(4, device='cuda')\nz[3].fill_(1.0); z[2].fill_(n)",
    ),
    "arange moved": ("t = torch.arange(n).to(x.device)", "t = torch.arange(n, device=x.device)"),
    "arange with dtype moved": (
        "t = torch.arange(0, n, dtype=torch.long).to(device=x.device, non_blocking=True)",
        "t = torch.arange(0, n, dtype=torch.long, device=x.device)",
    ),
    "shaped, then moved": (
        "t = torch.ones(n, n).tril().bool().to('cuda')",
        "t = torch.ones(n, n, device='cuda').tril().bool()",
    ),
    "cuda()": ("t = torch.zeros(n).cuda()", 't = torch.zeros(n, device="cuda")'),
    "copied into": ("x[0, :n].copy_(torch.ones(n))", "x[0, :n].copy_(torch.ones(n, device=x.device))"),
    "factory over lines": (
        """
        t = torch.full(
            (n, n),  # square
            2.0,
        ).to(x.device)
        """,
        """
        t = torch.full(
            (n, n),  # square
            2.0,
            device=x.device,
        )
        """,
    ),
}

# Also those that may differ somewhere: in what they check, in a dtype, in what is a view.
UNSAFE = {
    "a float by name": ("t = torch.tensor(v, device='cuda')", "t = torch.full((), v, device='cuda')"),
    "a list as long as a name says": (
        "t = torch.tensor([0.0] * n, device='cuda')",
        "t = torch.full((n,), 0.0, device='cuda')",
    ),
    "new_tensor": ("t = x.new_tensor(2.0)", "t = x.new_full((), 2.0)"),
    "inv": ("t = torch.linalg.inv(x)", "t = torch.linalg.inv_ex(x)[0]"),
    "inv of inv": (
        "t = torch.linalg.inv(torch.linalg.inv(x) + x)",
        "t = torch.linalg.inv_ex(torch.linalg.inv_ex(x)[0] + x)[0]",
    ),
    "inv in a sum, a call and a comment": (
        "t = (-torch.linalg.inv(  # the inverse\n    x)).sum()",
        "t = (-torch.linalg.inv_ex(  # the inverse\n    x)[0]).sum()",
    ),
    "cholesky": (
        "t = torch.linalg.cholesky(x, upper=True)",
        "t = torch.linalg.cholesky_ex(x, upper=True)[0]",
    ),
    "solve": ("t = torch.linalg.solve(x, y, left=False)", "t = torch.linalg.solve_ex(x, y, left=False)[0]"),
    "lu_factor": ("lu, pivots = torch.linalg.lu_factor(x)", "lu, pivots = torch.linalg.lu_factor_ex(x)[:2]"),
    "masked_fill": ("t = x.masked_fill(x > 0, x.max())", "t = torch.where(x > 0, x.max(), x)"),
    "masked_fill_": ("x.masked_fill_(x > 0, x.max())", "x.copy_(torch.where(x > 0, x.max(), x))"),
    "_assert": ("torch._assert((x > 0).all(), 'positive')", "torch._assert_async((x > 0).all(), 'positive')"),
    "_assert by keyword": (
        "torch._assert((x > 0).all(), message='positive')",
        "torch._assert_async((x > 0).all(), assert_msg='positive')",
    ),
    "distribution": (
        "t = torch.distributions.Categorical(logits=x)",
        "t = torch.distributions.Categorical(logits=x, validate_args=False)",
    ),
    "distribution, told to decide": (
        "t = torch.distributions.Normal(x, y, validate_args=None)",
        "t = torch.distributions.Normal(x, y, validate_args=False)",
    ),
    "distribution over lines": (
        """
        t = torch.distributions.Normal(
            x,  # mean
            y.exp()  # spread
        )
        """,
        """
        t = torch.distributions.Normal(
            x,  # mean
            y.exp(),  # spread
            validate_args=False
        )
        """,
    ),
    "distribution over lines, trailing comma": (
        """
        t = torch.distributions.Normal(
            x,
            y,  # spread
        )
        """,
        """
        t = torch.distributions.Normal(
            x,
            y,  # spread
            validate_args=False,
        )
        """,
    ),
    "linspace moved": ("t = torch.linspace(0, 1, n).to(x.device)", "t = torch.linspace(0, 1, n, device=x.device)"),
    "one row": ("t = x[[0]]", "t = x[0:1]"),
    "the last but one": ("t = x[[-2]]", "t = x[-2:-1]"),
    "the last of a dimension": ("t = x[..., [-1], :]", "t = x[..., -1:, :]"),
    "neighbours": ("t = x[:, [1, 2, 3]]", "t = x[:, 1:4]"),
    "stored under a list": ("x[:, [0]] = 0.0", "x[:, 0:1] = 0.0"),
    "rows": (
        "z = torch.zeros(4, device='cuda')\nz[torch.arange(2, device='cuda')] = 1.0",
        "z = torch.zeros(4, device='cuda')\nz.index_fill_(0, torch.arange(2, device='cuda'), 1.0)",
    ),
    "element of what a call returns": (
        "z = torch.zeros(4, device='cuda')\nz[0] = float(round(v)) + self.extra(n)",
        "z = torch.zeros(4, device='cuda')\nz[0].fill_(float(round(v)) + self.extra(n))",
    ),
    "pinned": (
        "p = torch.zeros(4, pin_memory=True)\nt = p.to(x.device)",
        "p = torch.zeros(4, pin_memory=True)\nt = p.to(x.device, non_blocking=True)",
    ),
}

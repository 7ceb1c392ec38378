export default function Tensor({ address }: { address: string }) {
  return (
    <div className="fill" data-testid="panel-tensor">
      {address}
    </div>
  )
}

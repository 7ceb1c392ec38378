export default function Relations({ address }: { address: string }) {
  return (
    <div className="fill" data-testid="panel-relations">
      {address}
    </div>
  )
}

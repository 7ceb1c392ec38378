export function Runs({ error }: { error: Error | null }) {
  return (
    <div className="fill" data-testid="panel-runs">
      {error?.message}
    </div>
  )
}

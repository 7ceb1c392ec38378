import { useView, type NodeChoice } from '~/state/store'
import classes from './origin.module.css'

/** A link that selects a node; the last part of the name can be emphasised. */
export function NodeLink({ node, isStrong = false }: { node: NodeChoice; isStrong?: boolean }) {
  const selectNode = useView((view) => view.selectNode)
  const at = node.name.lastIndexOf('/') + 1
  return (
    <button
      type="button"
      className={`${classes['node'] ?? ''} mono`}
      onClick={() => selectNode(node)}
      data-testid="origin-node"
      data-node={node.name}
      title={node.name}
    >
      <bdi>
        {node.name.slice(0, at)}
        {isStrong ? <b>{node.name.slice(at)}</b> : node.name.slice(at)}
      </bdi>
    </button>
  )
}

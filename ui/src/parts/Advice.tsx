import { Badge } from '@mantine/core'
import { IconAlertTriangle, IconBulb } from '~/parts/icons'
import { useId } from 'react'
import { useQuery } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { Condition, HitPage, HitRecord, NodeHits } from '~/api/types'
import { useView, withoutStep, type NodeChoice } from '~/state/store'
import classes from './Advice.module.css'
import { adviceText } from './adviceText'
import { conditionTexts } from './conditionTexts'
import { useConditionWords } from './conditionWords'
import { HitMeasures } from './HitMeasures'
import { parseAddress } from './tensorAddress'

/** The conditions of the open session, with their meaning and advice on hits. */
export function useConditions() {
  const run = useView((view) => view.run)
  return useQuery({
    // What can be watched depends on the step: one condition is only checked at the start.
    queryKey: keys.step(run, 'conditions'),
    queryFn: ({ signal }) => get<Condition[]>(path(run, '/conditions'), {}, signal),
    enabled: run !== '',
  })
}

/** The hits on a node at the step shown; undefined if there are none. */
export function useNodeHits(node: NodeChoice | null): NodeHits | undefined {
  const run = useView((view) => view.run)
  const { data } = useQuery({
    queryKey: keys.hits(run, 'node', node),
    queryFn: ({ signal }) =>
      get<HitPage>(
        path(run, '/hits'),
        { rank: node?.rank, graph: node?.graph, focus: node?.name, limit: 1 },
        signal,
      ),
    enabled: run !== '' && node !== null,
  })
  const first = data?.nodes[0]
  return node !== null && first?.node === node.name && first.graph === node.graph ? first : undefined
}

/** Advice on the hits of a tensor, or of all tensors of a node; nothing if there are no hits. */
export function Advice(props: { address: string } | { node: NodeChoice | null }) {
  const { t } = useTranslation(conditionTexts)
  const heading = useId()
  const address = 'address' in props ? withoutStep(props.address) : null
  const parsed = address === null ? null : parseAddress(address)
  const node =
    'node' in props ? props.node : parsed && { rank: parsed.rank, graph: parsed.graph, name: parsed.node }
  const nodeHits = useNodeHits(node)
  const tensors = (nodeHits?.tensors ?? []).filter(
    (tensor) => address === null || withoutStep(tensor.address) === address,
  )
  const conditions = new Map<string, HitRecord[]>()
  for (const hit of tensors.flatMap((tensor) => tensor.hits)) {
    conditions.set(hit.condition, [...(conditions.get(hit.condition) ?? []), hit])
  }
  if (conditions.size === 0) return null
  return (
    <section className={classes['advice']} data-testid="advice" aria-labelledby={heading}>
      <h3 id={heading} className={classes['heading']}>
        <IconBulb size={15} aria-hidden />
        {t('advice')}
      </h3>
      {[...conditions].map(([condition, hits]) => (
        <ConditionAdvice key={condition} condition={condition} hits={hits} />
      ))}
    </section>
  )
}

function ConditionAdvice({ condition, hits }: { condition: string; hits: HitRecord[] }) {
  const words = useConditionWords()
  const { data: conditions } = useConditions()
  const about = conditions?.find((record) => record.id === condition)
  const first = hits[0]
  return (
    <div data-testid="advice-condition" data-condition={condition}>
      <div className={classes['condition']}>
        <IconAlertTriangle size={14} aria-hidden />
        <strong>{words.label(condition)}</strong>
        {first && (
          <Badge size="xs" variant="default" className="mono">
            {first.abbreviation}
          </Badge>
        )}
      </div>
      {hits.map((hit) => (
        <HitMeasures key={hit.watchpoint} hit={hit} />
      ))}
      {about && hits.some((hit) => hit.hit) && (
        <>
          <p className={classes['meaning']}>
            <Words text={adviceText(about.meaning)} />
          </p>
          <ol className={classes['steps']}>
            {about.advice.map((step) => (
              <li key={step}>
                <Words text={adviceText(step)} />
              </li>
            ))}
          </ol>
        </>
      )}
    </div>
  )
}

/** Text with the parts between backticks set as code. */
function Words({ text }: { text: string }) {
  return text.split('`').map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))
}

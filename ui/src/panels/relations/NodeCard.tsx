import { HoverCard, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { useView } from '~/state/store'
import { shortName, type Card } from './columns'
import css from './relations.module.css'
import { SlotStatistics } from './SlotStatistics'
import { relationsTexts } from './texts'
import { walkTo } from './trail'

/** Maximum number of outputs drawn per node; outputs with hits come first. */
const MOST_SLOTS = 4

interface Props {
  card: Card
  rank: number
  graph: string
  /** The output whose tensor is shown. */
  chosenSlot: number | null
}

/** The card of a node, with its outputs as circles. */
export function NodeCard({ card: { node, ...box }, rank, graph, chosenSlot }: Props) {
  const { t } = useTranslation(relationsTexts)
  const selectNode = useView((view) => view.selectNode)
  const abbreviations = node.abbreviations ?? {}
  const slots = node.slots.map((slot) => slot.slot)
  const isNotable = (slot: number) => slot === chosenSlot || abbreviations[slot] !== undefined
  const drawn = [...slots.filter(isNotable), ...slots.filter((slot) => !isNotable(slot))].slice(0, MOST_SLOTS)
  drawn.sort((a, b) => a - b)
  const name = shortName(node.name)
  return (
    <div
      className={css['card']}
      style={{ left: box.x, top: box.y, width: box.width, height: box.height }}
      data-testid="relation-node"
      data-node={node.name}
      data-centre={node.distance === 0 || undefined}
      data-hit={Object.keys(abbreviations).length > 0 || undefined}
    >
      <button
        type="button"
        className={css['node']}
        title={node.name}
        onClick={() => selectNode({ rank, graph, name: node.name })}
      >
        <span className={css['name']}>{name}</span>
        <span className={css['type']}>{node.type}</span>
      </button>
      <div className={css['slots']}>
        {drawn.map((slot) => {
          const hits = abbreviations[slot] ?? []
          const address = `${rank}/${graph}/${node.name}:${slot}`
          const labels = [
            t('slot', { slot, name }),
            ...(hits.length ? [t('hits', { conditions: hits.join(', ') })] : []),
          ]
          return (
            <HoverCard key={slot} openDelay={250} shadow="md" width={230} position="top" withinPortal>
              <HoverCard.Target>
                <button
                  type="button"
                  className={css['slot']}
                  aria-label={labels.join(', ')}
                  data-testid="relation-slot"
                  data-address={address}
                  data-chosen={slot === chosenSlot || undefined}
                  data-hit={hits.length > 0 || undefined}
                  onDoubleClick={() => walkTo(address)}
                  onKeyDown={(event) => event.key === 'Enter' && walkTo(address)}
                >
                  {hits.length > 0 ? hits.join(' ') : slots.length > 1 ? slot : ''}
                </button>
              </HoverCard.Target>
              <HoverCard.Dropdown p="xs">
                <SlotStatistics node={{ rank, graph, name: node.name }} slot={slot} />
              </HoverCard.Dropdown>
            </HoverCard>
          )
        })}
        {slots.length > drawn.length && (
          <Text size="xs" c="var(--quiet)" title={t('more', { count: slots.length - drawn.length })}>
            +{slots.length - drawn.length}
          </Text>
        )}
      </div>
    </div>
  )
}

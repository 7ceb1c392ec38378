import { Select } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { stateTexts } from '~/parts/stateTexts'
import { useView } from '~/state/store'
import { headerTexts } from './texts'

/** The choice of the rank shown; the selected node stays selected on the other rank. */
export function RankSelect() {
  const { t } = useTranslation(headerTexts)
  const { t: state } = useTranslation(stateTexts)
  const { data: session } = useSession()
  const rank = useView((view) => view.rank)
  const set = useView((view) => view.set)
  const ranks = session?.ranks ?? []
  if (ranks.length < 2) return null
  return (
    <Select
      w={92}
      aria-label={t('rank')}
      data-testid="rank-select"
      allowDeselect={false}
      value={String(rank)}
      comboboxProps={{ width: 220, position: 'bottom-start' }}
      data={ranks.map((record) => ({ value: String(record.rank), label: t('rankN', { rank: record.rank }) }))}
      renderOption={({ option }) => {
        const record = ranks.find((each) => String(each.rank) === option.value)
        const device = record?.device ? ` · ${record.device}` : ''
        return record ? `${option.label} · ${state(`word.${record.state}`)}${device}` : option.label
      }}
      onChange={(value) => {
        const chosen = Number(value)
        const { node } = useView.getState()
        set({ rank: chosen, node: node && { ...node, rank: chosen } })
      }}
    />
  )
}
